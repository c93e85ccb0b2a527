"""``sncl analyze`` as a person meets it."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from command_line import Sncl

from sncl.cli import pictures
from sncl.runs import loading

FEW: dict[str, list[str]] = {
    "perturbation": ["--rows", "60", "--draws", "2", "--absolute", "0,0.1", "--relative", "0,0.5"],
    "fisher": ["--rows", "40", "--eigenvalues", "2"],
    "tsne": ["--rows", "60"],
    "calibration": ["--rows", "60", "--samples", "2"],
}


@pytest.fixture
def analyze(sncl: Sncl) -> Sncl:
    return partial(sncl, "analyze")


@pytest.mark.parametrize("analysis", list(FEW))
def test_every_analysis_has_a_table_a_file_and_a_picture(
    analyze: Sncl, runs: Path, tmp_path: Path, analysis: str
) -> None:
    folders = [runs / name for name in ("er-0", "er-1", "sncl-0")]
    command = [analysis, *folders, *FEW[analysis], "--device", "cpu"]
    done = analyze(*command, "--out", "found.json", "--picture", "found.png")
    assert (done.code, done.err) == (0, "picture: found.png\n")
    header, *lines = done.out.splitlines()
    assert header.startswith("method  seeds")
    assert next(line.split()[:2] for line in lines if line.startswith("ER")) == ["ER", "2"]
    assert "±" in done.out and "SNCL" in done.out
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["analysis"] == analysis
    assert [(each["title"], each["seeds"]) for each in found["groups"]] == [("ER", [0, 1]), ("SNCL", [0])]
    assert [run["run"] for run in found["runs"]] == [str(folder) for folder in folders]
    printed = analyze(*command, "--json")
    assert (json.loads(printed.out), printed.err) == (found, "")


def test_tsne_of_one_task(analyze: Sncl, runs: Path, tmp_path: Path) -> None:
    done = analyze("tsne", runs / "er-0", runs / "sncl-0", *FEW["tsne"], "--task", "1", "--picture", "found.svg")
    assert done.code == 0
    picture, note = done.err.splitlines()
    assert picture == "picture: found.svg"
    assert note.startswith(f"note: {runs / 'er-0'} did not keep") and "--keep-tasks" in note
    er, drifted = done.out.splitlines()[1:]
    assert er.split()[-1] == "–" and float(drifted.split()[-1]) > 0
    assert "<svg" in (tmp_path / "found.svg").read_text()


def test_help(analyze: Sncl) -> None:
    done = analyze("--help")
    assert done.code == 0
    assert all(name in done.out for name in FEW)
    for name, options in FEW.items():
        text = analyze(name, "--help").out
        assert all(option in text for option in (*options[::2], "--out", "--picture", "--data", "--device", "--json"))


def test_errors_are_one_line(analyze: Sncl, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = runs / "er-0"
    unfinished = tmp_path / "unfinished"
    shutil.copytree(folder, unfinished)
    (unfinished / "result.json").unlink()
    cases: dict[str, list[str | Path]] = {
        "no run folder": ["fisher", tmp_path],
        "not finished": ["fisher", unfinished],
        "same experiment": ["calibration", folder, folder, "--rows", "30"],
        "predicts in its own way": ["calibration", runs / "icarl-0"],
        "--out is a .json file": ["fisher", folder, "--out", "found.txt"],
        "in a folder that exists": ["fisher", folder, "--out", "nowhere/found.json"],
        "a .png or .svg file": ["fisher", folder, "--picture", "found.pdf"],
        "with commas between them": ["perturbation", folder, "--absolute", "0,a"],
        "that grow": ["perturbation", folder, "--relative", "0.5,0.1"],
        "from 0 on": ["perturbation", folder, "--absolute", "-1"],
        "tasks 1 to 3, not 0": ["tsne", folder, "--task", "0"],
        "there is no device": ["tsne", folder, "--device", "abacus"],
        "Missing argument": ["fisher"],
    }
    for words, command in cases.items():
        done = analyze(*command)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("error: ") and done.err.count("\n") == 1 and words in done.err, done.err
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    done = analyze("fisher", folder, "--picture", "found.png")
    assert (done.code, done.err) == (2, "error: drawing needs matplotlib: pip install matplotlib\n")


def test_ctrl_c_writes_nothing(analyze: Sncl, runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "load_run", interrupt)
    done = analyze("fisher", runs / "er-0", "--out", "found.json")
    assert (done.code, done.err) == (130, "stopped; nothing was written\n")
    assert not (tmp_path / "found.json").exists()
