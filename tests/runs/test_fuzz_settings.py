"""Damaged files of settings are read or refused in one line."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, corpus, fresh, mutants, read_or_refused

from sncl.runs.plan import plan
from sncl.runs.settings import read_settings


@FUZZ
@given(st.data())
def test_settings(tmp_path: Path, data: st.DataObject) -> None:
    path = fresh(tmp_path, ".toml")
    path.write_bytes(data.draw(mutants(corpus("toml"))))
    found = read_or_refused(lambda: read_settings(path, "seq-digits", "er", 30))
    if found is not None:
        read_or_refused(lambda: plan("seq-digits", "er", memory=30, device="cpu", settings=found))
    path.unlink()
