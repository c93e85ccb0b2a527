"""What TensorBoard reads of a run, also of one that was killed, and that nothing else changes by it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl

from sncl.errors import SnclError
from sncl.networks.gating.attach import variance_gates
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training import tensorboard as boards
from sncl.training.events import Moment

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SHORT = {"memory": 30, "tasks": 3, "epochs": 1, "device": "cpu"}
TIMED = "speed/"  # what no two runs have in common


class Crash(Exception):
    """Instead of a SIGKILL."""


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
    found.Reload()
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar by name: step and value."""
    found = read(folder)
    return {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}


def lines(folder: Path, event: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry["event"] == event]


def pairs(steps: list[int], values: list[float]) -> list[tuple[int, Any]]:
    return [(step, pytest.approx(value, rel=1e-5)) for step, value in zip(steps, values, strict=True)]


def test_everything_is_there(tmp_path: Path) -> None:
    result = perform(plan("seq-digits", "sncl", **SHORT), tmp_path, tensorboard=True)
    found = scalars(tmp_path)
    losses, evaluations = lines(tmp_path, "losses"), lines(tmp_path, "evaluation")
    steps = [line["step"] for line in losses]
    ends = [line["step"] for line in evaluations]
    for name in losses[-1]["losses"]:
        known = [line for line in losses if name in line["losses"]]
        assert found[f"loss/{name}"] == pairs(
            [line["step"] for line in known], [line["losses"][name] for line in known]
        )
    for name in ("steps", "rows"):
        assert [step for step, value in found[f"speed/{name} per second"] if value > 0] == steps
    assert found["memory/rows"][-1] == (steps[-1], 30)
    assert found["memory/filled"][0] == (1, pytest.approx(16 / 30))
    for readout, measure in result.measures.items():
        matrix = measure.accuracy_matrix
        assert found[f"accuracy/{readout}/task 01"] == pairs(ends, [row[0] for row in matrix])
        assert found[f"accuracy/{readout}/task 03"] == pairs(ends[2:], [matrix[2][2]])  # not before it is learned
        assert found[f"accuracy/{readout}/mean"][-1] == pairs(ends[2:], [measure.accuracy])[0]
        assert [step for step, _ in found[f"forgetting/{readout}"]] == ends[1:]
        assert found[f"forgetting/{readout}"][-1][1] == pytest.approx(measure.forgetting, rel=1e-5)
    for layer in ("layer1.1", "layer2.1"):
        numbers = [line["open_neurons"][layer][0] for line in evaluations]
        assert found[f"open neurons/{layer}"] == pairs(ends, numbers)
    assert found["open neurons/part of all"][-1][1] == pytest.approx(result.active_fraction)


def test_a_histogram_of_lambda_by_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def noted(net: Any) -> Any:
        found = list(variance_gates(net))
        seen.append(float(found[0][1].log_lambda.detach().sum()))
        return found

    monkeypatch.setattr(boards, "variance_gates", noted)
    perform(plan("rot-digits", "sncl", **SHORT | {"tasks": 2}, settings={"gates": "kl"}), tmp_path, tensorboard=True)
    found = read(tmp_path)
    assert found.Tags()["histograms"] == ["log lambda/layer1.1", "log lambda/layer2.1"]
    histograms = [each.histogram_value for each in found.Histograms("log lambda/layer1.1")]
    assert [each.num for each in histograms] == [100, 100]
    assert [each.sum for each in histograms] == pytest.approx(seen)


@pytest.mark.parametrize(("stream", "method"), [("digits-360", "er"), ("seq-digits", "pnn")])
def test_what_a_method_or_stream_does_not_have_is_left_out(tmp_path: Path, stream: str, method: str) -> None:
    perform(
        plan(stream, method, memory=30, tasks=None if stream == "digits-360" else 1, device="cpu"),
        tmp_path,
        tensorboard=True,
    )
    kinds = {name.partition("/")[0] for name in scalars(tmp_path)}
    assert kinds == {"loss", "speed", "accuracy"} | ({"memory"} if method == "er" else set())


def crash_when(condition: Callable[[Moment], bool]) -> Callable[[Moment], None]:
    def watch(moment: Moment) -> None:
        if condition(moment):
            raise Crash

    return watch


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["every step stored", "only task ends stored"])
def test_a_resumed_run_goes_on_without_a_step_twice(tmp_path: Path, every: float) -> None:
    experiment = plan("seq-digits", "sncl", **SHORT)
    whole = perform(experiment, tmp_path / "whole", tensorboard=True)
    broken = tmp_path / "broken"
    for condition in (
        lambda moment: moment.steps == 5,
        lambda moment: moment.steps == 30,
        lambda moment: moment.accuracy is not None and moment.task == 1,  # scored, and not stored
    ):
        with pytest.raises(Crash):
            perform(experiment, broken, watch=crash_when(condition), checkpoint_seconds=every, tensorboard=True)
    again = perform(experiment, broken, checkpoint_seconds=every, tensorboard=True)
    assert again.measures == whole.measures
    ours, theirs = scalars(broken), scalars(tmp_path / "whole")
    assert {name: [step for step, _ in each] for name, each in ours.items()} == {
        name: [step for step, _ in each] for name, each in theirs.items()
    }
    same = [name for name in ours if not name.startswith(TIMED)]
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


@pytest.mark.slow
def test_what_a_checkpoint_knows_of_is_there_after_sigkill(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from sncl.runs.perform import perform
from sncl.runs.plan import plan

def watch(moment):
    if moment.steps == 50:
        os.kill(os.getpid(), signal.SIGKILL)

perform(plan("seq-digits", "er", **{SHORT}), Path("run"), watch=watch, checkpoint_seconds=1e9, tensorboard=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    perform(plan("seq-digits", "er", **SHORT), tmp_path / "run", tensorboard=True)
    steps = [line["step"] for line in lines(tmp_path / "run", "losses")]
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2
    assert [step for step, _ in scalars(tmp_path / "run")["loss/labels"]] == steps == list(range(1, steps[-1] + 1))


@pytest.mark.parametrize("first", [True, False])
def test_a_run_is_the_same_with_and_without(tmp_path: Path, first: bool) -> None:
    """And may be resumed either way."""
    experiment = plan("seq-digits", "sncl", **SHORT)
    perform(experiment, tmp_path / "plain")
    watch = crash_when(lambda moment: moment.steps == 40)
    with pytest.raises(Crash):
        perform(experiment, tmp_path / "mixed", watch=watch, tensorboard=first)
    perform(experiment, tmp_path / "mixed", tensorboard=not first)
    assert (tmp_path / "mixed" / "log.jsonl").read_bytes() == (tmp_path / "plain" / "log.jsonl").read_bytes()
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("plain", "mixed")]
    timeless = {"seconds": 0, "crc32": ""}
    assert [result | timeless for result in results] == [results[0] | timeless] * 2
    steps = [step for step, _ in scalars(tmp_path / "mixed")["loss/labels"]]
    assert (steps[0] == 1) == first


# --- the command line ------------------------------------------------------------------------------------------------

TRAIN = ("train", "--stream", "seq-digits", "--method", "er", "--memory", "30", "--tasks", "1", "--epochs", "1")


def test_train_writes_it_into_the_run_folder(sncl: Sncl, tmp_path: Path) -> None:
    done = sncl(*TRAIN, "--out", "with", "--tensorboard")
    assert (done.code, done.err) == (0, "run folder: with\n")
    assert scalars(tmp_path / "with")["accuracy/class_il/mean"]
    assert sncl(*TRAIN, "--out", "without").code == 0
    assert not (tmp_path / "without" / "tensorboard").exists()
    again = sncl(*TRAIN, "--out", "without", "--tensorboard")
    assert "without --tensorboard; give another --out" in again.err


@pytest.mark.parametrize("command", [TRAIN, ("reproduce", "table1")])
def test_without_the_package_the_command_says_what_to_install(
    sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(boards, "find_spec", lambda name: None)
    done = sncl(*command, "--tensorboard")
    assert (done.code, done.out) == (2, "")
    assert "a log for TensorBoard needs tensorboard: pip install tensorboard" in done.err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SnclError, match="pip install"):
        perform(plan("seq-digits", "er", device="cpu"), tmp_path / "run", tensorboard=True)
