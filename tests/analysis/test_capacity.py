"""Pairs of runs with gates and without: accuracy right after learning each task, seed by seed."""

import json
import shutil
import statistics
from pathlib import Path

import pytest
from command_line import Sncl

from sncl.analysis.capacity import capacity
from sncl.errors import SnclError
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT, read_result

TASKS = 3


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SNCL on permuted digits: seeds 0 and 1 with gates and without, seed 2 with gates alone; and a run of ER."""
    folder = tmp_path_factory.mktemp("pairs")
    for gates, seeds in (("grow", (0, 1, 2)), ("off", (0, 1))):
        for seed in seeds:
            train(folder / f"{gates}-{seed}", "perm-digits", seed, gates=gates)
    perform(plan("perm-digits", "er", memory=30, tasks=TASKS, epochs=1, device="cpu"), folder / "er")
    return folder


def train(folder: Path, stream: str, seed: int = 0, tasks: int | None = TASKS, **settings: str) -> Path:
    chosen = {"width": "20"} | settings
    perform(plan(stream, "sncl", memory=30, tasks=tasks, epochs=1, seed=seed, device="cpu", settings=chosen), folder)
    return folder


def diagonal(folder: Path) -> list[float]:
    return [row[task] or 0.0 for task, row in enumerate(read_result(folder / RESULT).accuracy_matrix)]


def test_differences_are_those_of_each_seed(pairs: Path) -> None:
    notes: list[str] = []
    (group,) = capacity([pairs], notes.append)
    assert notes == ["left out, since no run differs from them in nothing but its gates: er, grow-2"]
    assert (group.title, [run["seed"] for run in group.runs]) == ("SNCL", [0, 1])
    found = group.summary["readouts"]["domain_il"]
    ours, theirs = ([diagonal(pairs / f"{gates}-{seed}") for seed in (0, 1)] for gates in ("grow", "off"))
    gains = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(ours, theirs, strict=True)]
    for key, rows in {"with_gates": ours, "without_gates": theirs, "difference": gains}.items():
        for task, values in enumerate(zip(*rows, strict=True)):
            assert found[key][task]["mean"] == pytest.approx(statistics.fmean(values))
            assert found[key][task]["std"] == pytest.approx(statistics.stdev(values))
    later = [statistics.fmean(row[1:]) - row[0] for row in gains]
    assert found["growth"] == pytest.approx({"mean": statistics.fmean(later), "std": statistics.stdev(later)})
    opened = read_result(pairs / "grow-0" / RESULT).open_by_task
    assert group.runs[0]["measures"]["open"] == [100 * part for part in opened or []]
    assert group.runs[1]["without_gates"] == str(pairs / "off-1")


def test_gates_of_several_kinds_have_the_same_partner(pairs: Path, tmp_path: Path) -> None:
    other = train(tmp_path / "kl", "perm-digits", gates="kl", anneal="1")
    first, second = capacity([pairs / "grow-0", pairs / "off-0", other], print)
    assert "gates=grow" in first.title and "gates=kl" in second.title
    plain = [group.summary["readouts"]["domain_il"]["without_gates"] for group in (first, second)]
    assert plain[0] == plain[1] and first.runs[0]["without_gates"] == second.runs[0]["without_gates"]


def test_every_readout_is_compared(tmp_path: Path) -> None:
    for gates in ("grow", "off"):
        train(tmp_path / gates, "seq-digits", gates=gates)
    (group,) = capacity([tmp_path], print)
    assert list(group.summary["readouts"]) == ["class_il", "task_il"]
    for readout, found in group.summary["readouts"].items():
        matrix = read_result(tmp_path / "grow" / RESULT).measures[readout].accuracy_matrix
        assert [each["mean"] for each in found["with_gates"]] == [matrix[task][task] for task in range(TASKS)]


def test_the_command(sncl: Sncl, pairs: Path, tmp_path: Path) -> None:
    folders = [pairs / name for name in ("grow-0", "grow-1", "off-0", "off-1")]
    done = sncl("analyze", "capacity", *folders, "--out", "found.json", "--picture", "found.png")
    assert (done.code, done.err) == (0, "picture: found.png\n")
    header, *lines = done.out.splitlines()
    titles = ("method", "seeds", "read-out", "right after", "open, %", "with gates, %", "without, %", "difference")
    assert [part.strip() for part in header.split("  ") if part.strip()] == list(titles)
    assert all("Domain-IL" in line for line in lines)
    assert len(lines) == TASKS + 3 and "task 3" in lines[2] and "first half" in lines[3]
    found = json.loads((tmp_path / "found.json").read_text())
    growth = found["groups"][0]["summary"]["readouts"]["domain_il"]["growth"]
    assert lines[5].rstrip().endswith(f"{growth['mean']:+.2f} ± {growth['std']:.2f}")
    assert (found["analysis"], found["groups"][0]["seeds"]) == ("capacity", [0, 1])
    assert found["runs"][0].keys() >= {"run", "without_gates", "seed", "experiment", "measures"}
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    whole = sncl("analyze", "capacity", pairs, "--json")
    assert whole.json() == found and whole.err.startswith("note: left out, since no run differs")


def test_errors_are_one_line(sncl: Sncl, pairs: Path, tmp_path: Path) -> None:
    for gates in ("grow", "off"):
        train(tmp_path / "sequential" / gates, "seq-digits", gates=gates)
        train(tmp_path / "turning" / gates, "digits-360", tasks=None, gates=gates)
    shutil.copytree(pairs / "off-0", tmp_path / "damaged")
    (tmp_path / "damaged" / RESULT).write_text("{")
    shutil.copytree(pairs / "off-0", tmp_path / "half")
    (tmp_path / "half" / RESULT).unlink()
    (tmp_path / "empty").mkdir()
    cases: dict[str, list[str | Path]] = {
        "differ in nothing but their gates": [pairs / "grow-0", pairs / "off-1"],
        "needs one of the same seed, settings and data with gates=off": [pairs / "er"],
        "are of different streams": [pairs, "sequential"],
        "was not tested after each of several tasks": ["turning"],
        "result.json is damaged": [pairs / "grow-0", "damaged"],
        "none of these runs is finished": ["half"],
        "empty holds no runs": ["empty"],
        "there is no folder nowhere": ["nowhere"],
        "--out is a .json file": [pairs, "--out", "found.txt"],
        "a .png or .svg file": [pairs, "--picture", "found.pdf"],
        "Missing argument": [],
    }
    for words, arguments in cases.items():
        done = sncl("analyze", "capacity", *arguments)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("error: ") and done.err.count("\n") == 1 and words in done.err, done.err


def test_a_matrix_with_gaps(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was not measured has no difference and does not count in a half."""
    monkeypatch.setattr("sncl.analysis.capacity.right_after", lambda run, readout: [None, 60.0, 50.0])
    (group,) = capacity([pairs / "grow-0", pairs / "off-0"], print)
    found = group.summary["readouts"]["domain_il"]
    assert (found["difference"][0], found["first_half"], found["growth"]) == (None, None, None)
    assert found["second_half"] == {"mean": 0.0, "std": 0.0}


def test_a_run_with_other_settings_is_no_partner(pairs: Path, tmp_path: Path) -> None:
    other = train(tmp_path / "other", "perm-digits", gates="off", gamma="0")
    with pytest.raises(SnclError, match="no two of these runs"):
        capacity([pairs / "grow-0", other], print)
