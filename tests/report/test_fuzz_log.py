"""Damaged logs and folders of runs: a page, or an error in one line."""

import shutil
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.report import write_report
from sncl.report.log import read_log
from sncl.training.log import LOG


@FUZZ
@given(st.data())
def test_log(runs: Path, tmp_path: Path, data: st.DataObject) -> None:
    lines = (runs / "sncl-0" / LOG).read_bytes().splitlines(keepends=True)
    path = fresh(tmp_path, ".jsonl")
    path.write_bytes(data.draw(mutants([b"".join(lines[:3]), b"".join(lines[-3:])])))
    found = read_or_refused(lambda: list(read_log(path)))
    assert found is None or all("step" in line for line in found)
    path.unlink()


@settings(FUZZ, max_examples=FUZZ.max_examples * 2 // 5)
@given(st.data(), st.sampled_from(["result.json", "experiment.json", LOG]))
def test_report(runs: Path, tmp_path: Path, data: st.DataObject, name: str) -> None:
    folder = fresh(tmp_path)
    shutil.copytree(runs / "sncl-0", folder)
    (folder / name).write_bytes(data.draw(mutants([(folder / name).read_bytes()])))
    read_or_refused(lambda: write_report([folder], tmp_path / "page.html", lambda note: None))
    shutil.rmtree(folder)
