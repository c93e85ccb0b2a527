"""Files of every release: those of 0.1 are refused and left alone, those of 0.2 go on to the numbers kept beside them.
Runs with gates that are gone are refused where they would go on or be loaded, and can be read everywhere else.

``release_files`` has written them; `files/README.md` says with which version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
import release_files
from command_line import Sncl
from run_folders import contents

from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.runs.loading import load_run
from sncl.runs.perform import perform
from sncl.runs.result import read_result
from sncl.training.checkpoint import read_checkpoint, read_json, sealed, unsealed, write_checkpoint, write_json
from sncl.training.follow import follow
from sncl.training.learner import Learner
from sncl.training.run import CHECKPOINT

FILES = Path(__file__).parent / "files"
TRAIN = ("train", "--stream", "seq-digits", "--method", "er", "--memory", "10", "--tasks", "2", "--epochs", "1")
TRAIN += ("--seed", "3", "--device", "cpu", "--set", "batch_size=64", "--set", "width=8", "--out")


def files_of(version: str, folder: Path) -> Path:
    with ZipFile(FILES / f"{version}.zip") as archive:
        archive.extractall(folder / "files")
    return folder / "files"


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 300_000


# --- 0.1 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "run"),
    [
        (TRAIN, "middle"),
        (TRAIN, "finished"),
        (("report", "--out", "page.html"), "finished"),
        (("analyze", "calibration"), "finished"),
        (("export", "--out", "net.onnx"), "finished"),
    ],
)
def test_runs_of_0_1_are_refused_and_left_alone(sncl: Sncl, tmp_path: Path, command: tuple[str, ...], run: str) -> None:
    folder = files_of("0.1.0", tmp_path) / "runs" / run
    before = contents(tmp_path)
    done = sncl(*command, folder)
    (line,) = done.err.splitlines()
    assert done.code == 2
    assert line.startswith(f"error: {folder} was made by sncl 0.1, whose runs cannot be read here; ")
    assert line.endswith("; make the run again in another folder, or use that version")
    assert contents(tmp_path) == before


def test_a_learner_of_0_1_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = files_of("0.1.0", tmp_path) / "learner"
    before = contents(tmp_path)
    learner = Learner(MLP(12, 4, width=8), "er", memory=10, replay=4, lr=0.05, device="cpu")
    with pytest.raises(SnclError, match=r"another version of sncl \(format 1, here \d\); start over, or use that"):
        learner.load(path)
    with pytest.raises(SnclError, match="does not say how far a stream was followed; load it yourself"):
        next(follow(learner, [], snapshot=path))
    assert contents(tmp_path) == before


# --- 0.2.0 -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return files_of("0.2.0", tmp_path)


def settings_of(folder: Path) -> dict[str, str]:
    """As the command that made the run would give them today."""
    settings = read_json(folder / "experiment.json")["settings"]
    assert settings.pop("threshold") == settings.pop("compensate") == 0  # gone since, and without effect
    return {key: str(value) for key, value in settings.items()}


def test_a_run_in_the_middle_goes_on_to_its_end(files: Path) -> None:
    """The numbers are those of the run that the same version had finished."""
    middle, finished = files / "runs" / "middle", files / "runs" / "finished"
    settings = settings_of(middle)
    assert read_checkpoint(middle / CHECKPOINT)[1]["learner"]["steps"] == release_files.MIDDLE
    wanted = read_checkpoint(finished / CHECKPOINT)[0]
    perform(release_files.experiment(settings), middle)
    ended, known = (read_result(folder / "result.json") for folder in (middle, finished))
    assert ended.measures == known.measures
    assert (ended.steps, ended.parameters, ended.active_fraction) == (
        known.steps,
        known.parameters,
        known.active_fraction,
    )
    found = read_checkpoint(middle / CHECKPOINT)[0]
    assert found.keys() >= wanted.keys()  # a later version may store more
    assert all(close(found[name].tolist(), value.tolist()) for name, value in wanted.items())


def test_a_finished_run_is_known(files: Path) -> None:
    folder = files / "runs" / "finished"
    before = contents(folder)
    result = perform(release_files.experiment(settings_of(folder)), folder)
    assert result == load_run(folder, device="cpu").result
    assert result.accuracy == read_json(folder / "result.json")["accuracy"]
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("name", "finish"),
    [
        ("learner", release_files.finish_learner),
        ("snapshot", release_files.finish_following),
        ("estimator", release_files.finish_estimator),
        ("study", release_files.finish_study),
    ],
)
def test_a_file_goes_on_to_its_numbers(files: Path, name: str, finish: Callable[[Path], release_files.Numbers]) -> None:
    wanted = json.loads((files / "numbers.json").read_text())[name]
    assert close(finish(files / name), wanted)


# --- gates that are gone ---------------------------------------------------------------------------------------------

GONE = {
    "natural": {"eta": 0.01, "anneal": 1.0, "start": "closed", "layers": "auto", "threshold": 0.0, "compensate": 0.0},
    "target": {"sparsity": 0.3, "layers": "auto"},
    "kl": {"eta": 0.01, "anneal": 1.0, "layers": "auto", "threshold": -7.0, "compensate": 1.0},
}
SHORT = ("--memory", "10", "--tasks", "2", "--epochs", "1", "--device", "cpu", "--set", "width=8")


@pytest.fixture(params=GONE)
def gone(request: pytest.FixtureRequest, sncl: Sncl, tmp_path: Path) -> Path:
    """The folder of a finished run as a version with these gates has left it; ``off`` beside it has none."""
    for name in ("gone", "off"):
        done = sncl("train", "--stream", "seq-digits", "--method", "sncl", *SHORT, "--set", "gates=off", "--out", name)
        assert done.code == 0
    folder = tmp_path / "gone"
    tensors, description = read_checkpoint(folder / CHECKPOINT)
    facts = {name: unsealed(read_json(folder / name)) for name in ("experiment.json", "result.json")}
    for each in (facts["experiment.json"], facts["result.json"]["manifest"], description["experiment"]):
        each["settings"] |= {"gates": request.param} | GONE[request.param]
    for name, content in facts.items():
        write_json(folder / name, sealed(content))
    write_checkpoint(folder / CHECKPOINT, tensors, description)
    return folder


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        ("train", "--stream", "seq-digits", "--method", "sncl", *SHORT, "--out"),
        ("analyze", "calibration"),
        ("export", "--torch", "--out", "net.pt2"),
    ],
)
def test_a_run_with_gates_that_are_gone_is_refused_and_left_alone(
    sncl: Sncl, gone: Path, command: tuple[str, ...], finished: bool
) -> None:
    if not finished:
        (gone / "result.json").unlink()
    before = contents(gone.parent)
    done = sncl(*command, gone)
    (line,) = done.err.splitlines()
    assert done.code == 2
    assert line.startswith(f"error: {gone} was made by an earlier version of sncl: ")
    named = read_json(gone / "experiment.json")["settings"]["gates"]
    assert ("threshold is gone; sncl analyze sparsity" if named == "kl" else f"--set gates={named} is gone; ") in line
    assert line.endswith("; make the run again in another folder, or use that version")
    assert contents(gone.parent) == before


def test_the_result_of_gates_that_are_gone_can_be_read(sncl: Sncl, gone: Path) -> None:
    policy = read_json(gone / "experiment.json")["settings"]["gates"]
    assert read_result(gone / "result.json").manifest.settings["gates"] == policy
    done = sncl("report", gone, gone.parent / "off", "--out", "page.html")
    assert done.code == 0
    assert f"SNCL, gates {policy}" in (gone.parent / "page.html").read_text()
    done = sncl("analyze", "capacity", gone, gone.parent / "off", "--json")
    assert (done.code, len(done.json()["groups"])) == (0, 1)


def close(found: object, wanted: object) -> bool:
    """The same, but for the last digits of fractions: another processor may round otherwise."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(close(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(close, found, wanted))
    return found == (pytest.approx(wanted, rel=1e-4, abs=1e-5) if isinstance(wanted, float) else wanted)
