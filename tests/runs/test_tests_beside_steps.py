"""Runs whose tests are made while they learn on: every file and every word of a run that waits for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from background_tests import Slow, slow_tests
from digit_streams import made
from run_folders import differences, same_checkpoint, same_run

from sncl.errors import Diverged
from sncl.methods.table import make
from sncl.networks.mlp import MLP
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training import run as running
from sncl.training.checkpoint import read_checkpoint
from sncl.training.evaluate import Scores
from sncl.training.events import Moment
from sncl.training.folder import CHECKPOINT, TASK_NETWORK
from sncl.training.learner import Learner
from sncl.training.log import LOG
from sncl.training.parallel import sharing_cores
from sncl.training.stopping import Stopped, heeding

TASKS = 3


def short(method: str = "sncl", stream: str = "seq-digits", **settings: object) -> Experiment:
    tasks = None if stream == "digits-360" else TASKS
    chosen = {"batch_size": "32", "width": "16"} | {name: str(value) for name, value in settings.items()}
    return plan(stream, method, memory=40, tasks=tasks, epochs=1, device="cpu", settings=chosen)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    with slow_tests(monkeypatch) as found:
        yield found


def alone(experiment: Experiment, folder: Path, **options: Any) -> list[Moment]:
    """On one core; what it told."""
    told: list[Moment] = []
    perform(experiment, folder, watch=told.append, **options)
    return told


def beside(experiment: Experiment, folder: Path, **options: Any) -> list[Moment]:
    """On two."""
    with sharing_cores():
        return alone(experiment, folder, **options)


@pytest.mark.parametrize(
    ("method", "stream", "settings"),
    [
        *((method, "seq-digits", {}) for method in ("sncl", "derpp", "icarl", "oewc", "lwf", "pnn", "agem", "sgd")),
        ("sncl", "perm-digits", {"ema": 0.9, "gates": "kl"}),
        ("derpp", "rot-digits", {"lr_drop": 0.1}),
        ("er", "digits-360", {}),
    ],
)
def test_every_file_is_that_of_one_core(
    tmp_path: Path, slow: Slow, method: str, stream: str, settings: dict[str, object]
) -> None:
    experiment = short(method, stream, **settings)
    ours = alone(experiment, tmp_path / "alone", keep_tasks=True)
    assert slow.begun == 0
    theirs = beside(experiment, tmp_path / "beside", keep_tasks=True)
    assert slow.begun == (0 if stream == "digits-360" else TASKS - 1)  # the last ones are waited for
    assert ours == theirs
    assert same_run(tmp_path / "alone", tmp_path / "beside")
    for task in range(1, slow.begun + 2):
        assert same_checkpoint(*(tmp_path / name / TASK_NETWORK.format(task) for name in ("alone", "beside")))


@pytest.mark.parametrize("steps", [0, 1, 3, 10_000], ids=["at once", "a step", "some", "until waited for"])
@pytest.mark.parametrize("every", [0.0, 1e9], ids=["every step stored", "only task ends stored"])
def test_every_checkpoint_is_that_of_one_core_however_long_tests_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow, steps: int, every: float
) -> None:
    written: list[tuple[Path, int, dict[str, torch.Tensor], dict[str, Any], int]] = []

    def noted(path: Path, tensors: dict[str, torch.Tensor], description: dict[str, Any]) -> None:
        facts = json.loads(json.dumps(description))
        facts["scores"].pop("seconds")
        written.append((path.name, (path.parent / LOG).stat().st_size, tensors, facts))  # type: ignore[arg-type]

    monkeypatch.setattr(running, "write_checkpoint", noted)
    slow.steps = steps
    alone(short(), tmp_path / "alone", checkpoint_seconds=every)
    ours, written = written, []
    beside(short(), tmp_path / "beside", checkpoint_seconds=every)
    assert (len(ours) == TASKS) == (every > 0) and len(ours) == len(written)
    for first, second in zip(ours, written, strict=True):
        assert first[:2] == second[:2] and first[3] == second[3]
        assert first[2].keys() == second[2].keys()
        assert all(torch.equal(first[2][name], second[2][name]) for name in first[2])


def go(folder: Path, watch: Callable[[Moment], None] | None = None) -> Scores:
    """A stream of several phases that does not say where they end, and is tested on everything."""
    folder.mkdir()
    stream = replace(made("seq-digits", tasks=TASKS, batch_size=32), joined=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        net = MLP(64, stream.classes, 12)
    learner = Learner(net, make("sncl"), memory=40, transform=stream.transform, device="cpu")
    return running.run(learner, stream, 1, folder, {"name": "it"}, watch)


def test_a_stream_without_boundaries(tmp_path: Path, slow: Slow) -> None:
    ours, theirs = list[Moment](), list[Moment]()
    first = go(tmp_path / "alone", ours.append)
    with sharing_cores():
        second = go(tmp_path / "beside", theirs.append)
    assert slow.begun == TASKS - 1 and ours == theirs
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert differences(tmp_path / "alone", tmp_path / "beside") == []


def test_tensorboard_is_told_the_same(tmp_path: Path, slow: Slow) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def told(folder: Path) -> dict[str, Any]:
        found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
        found.Reload()
        scalars = {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}
        shapes = {
            name: [(each.step, each.histogram_value) for each in found.Histograms(name)]
            for name in found.Tags()["histograms"]
        }
        timed = {name: [step for step, _ in each] for name, each in scalars.items() if name.startswith("speed/")}
        return scalars | shapes | timed

    experiment = short("sncl", "rot-digits", gates="kl")
    alone(experiment, tmp_path / "alone", tensorboard=True)
    beside(experiment, tmp_path / "beside", tensorboard=True)
    assert slow.begun == TASKS - 1
    assert told(tmp_path / "alone") == told(tmp_path / "beside")
    assert differences(tmp_path / "alone", tmp_path / "beside") == []


# --- stopped, killed, failing ----------------------------------------------------------------------------------------


def stored(folder: Path) -> tuple[int, int]:
    """The task and the step that the checkpoint is in front of; nothing, where there is none."""
    if not (folder / CHECKPOINT).exists():
        return 0, 0
    description = read_checkpoint(folder / CHECKPOINT)[1]
    return description["place"][0], description["learner"]["steps"]


KILLED = """
import os, signal, sys
from pathlib import Path
import pytest, torch
from test_tests_beside_steps import beside, short
from background_tests import slow_tests
from sncl.training.learner import Learner

torch.set_num_threads(1)
with pytest.MonkeyPatch.context() as patch, slow_tests(patch) as slow:
    learn = Learner.learn

    def killed(learner, *batch):
        losses = learn(learner, *batch)
        if slow.since == 3 and slow.begun == {number}:
            os.kill(os.getpid(), signal.SIGKILL)
        return losses

    patch.setattr(Learner, "learn", killed)
    beside(short(), Path({folder!r}), keep_tasks=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_killed_while_tests_are_under_way(tmp_path: Path, slow: Slow, number: int) -> None:
    """The checkpoint of the task's end is not there yet; the task is learned again."""
    alone(short(), tmp_path / "alone", keep_tasks=True)
    program = KILLED.format(number=number, folder=str(tmp_path / "killed"))
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": places}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert stored(tmp_path / "killed")[0] == number - 1
    kept = sorted(path.name for path in (tmp_path / "killed").glob("task-*"))
    assert kept == [TASK_NETWORK.format(task) for task in range(1, number)]
    beside(short(), tmp_path / "killed", keep_tasks=True)
    assert same_run(tmp_path / "alone", tmp_path / "killed")


def during(slow: Slow, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something in the third step that is made while the tests of the second task are under way."""
    learn = Learner.learn

    def learns(learner: Learner, *batch: Any) -> Any:
        if slow.since == 2 and slow.begun == 2:
            slow.begun += 1  # once
            act()
        return learn(learner, *batch)

    monkeypatch.setattr(Learner, "learn", learns)


class Crash(BaseException):
    """The end of the process as far as the run can tell."""


def crash() -> None:
    raise Crash


def test_a_crash_while_tests_are_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    alone(short(), tmp_path / "alone")
    with monkeypatch.context() as patch:
        during(slow, patch, crash)
        with pytest.raises(Crash):
            beside(short(), tmp_path / "crashed")
    assert stored(tmp_path / "crashed")[0] == 1
    beside(short(), tmp_path / "crashed")
    assert same_run(tmp_path / "alone", tmp_path / "crashed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_tests_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow, number: signal.Signals
) -> None:
    """They are waited for, and the checkpoint is that behind the batch."""
    alone(short(), tmp_path / "alone")
    with monkeypatch.context() as patch, heeding():
        before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        try:
            during(slow, patch, lambda: os.kill(os.getpid(), number))
            with pytest.raises(Stopped):
                beside(short(), tmp_path / "stopped")
        finally:
            signal.signal(signal.SIGTERM, before)
    assert stored(tmp_path / "stopped") == (2, evaluated(tmp_path / "alone")[1] + 3)
    assert log(tmp_path / "alone").startswith(log(tmp_path / "stopped"))
    beside(short(), tmp_path / "stopped")
    assert same_run(tmp_path / "alone", tmp_path / "stopped")


def log(folder: Path) -> bytes:
    return (folder / LOG).read_bytes()


def evaluated(folder: Path) -> list[int]:
    """The steps behind which tasks were tested."""
    lines = map(json.loads, log(folder).splitlines())
    return [line["step"] for line in lines if line["event"] == "evaluation"]


class Trouble(Exception):
    pass


def trouble(*_: object, **__: object) -> Any:
    raise Trouble


def test_an_error_in_training_leaves_what_it_leaves_on_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    alone(short(), tmp_path / "whole")
    fails_at, learn = evaluated(tmp_path / "whole")[1] + 3, Learner.learn
    told: dict[str, list[Moment]] = {}

    def learns(learner: Learner, *batch: Any) -> Any:
        return learn(learner, *batch) if learner.steps < fails_at else trouble()

    monkeypatch.setattr(Learner, "learn", learns)
    for name, cores in (("alone", nullcontext()), ("beside", sharing_cores())):
        with cores, pytest.raises(Trouble):
            perform(short(), tmp_path / name, watch=told.setdefault(name, []).append)
    assert slow.begun == 2 and told["alone"] == told["beside"] and told["beside"][-1].steps == fails_at
    assert stored(tmp_path / "beside")[0] == 2
    assert differences(tmp_path / "alone", tmp_path / "beside") == []


def refuse(*_: object) -> None:
    raise Diverged("the loss rose")


@pytest.mark.parametrize("way", ["a task is refused", "a test fails"])
def test_an_error_in_tests_leaves_what_it_leaves_on_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow, way: str
) -> None:
    tests = made("seq-digits", tasks=TASKS)
    if way == "a task is refused":
        monkeypatch.setattr(running, "check_task", refuse)
    else:
        monkeypatch.setattr(type(tests), "test", lambda stream, task: trouble())
        monkeypatch.setattr(running, "accuracies", lambda *_: {})
        monkeypatch.setattr(running, "diagnostics", lambda *_, **__: {})
    told: dict[str, list[Moment]] = {}
    for name, cores in (("alone", nullcontext()), ("beside", sharing_cores())):
        with cores, pytest.raises((Diverged, Trouble)):
            perform(short(), tmp_path / name, watch=told.setdefault(name, []).append)
    assert slow.begun == 1
    assert told["alone"] == told["beside"] and log(tmp_path / "alone") == log(tmp_path / "beside")
    assert not any((tmp_path / name / CHECKPOINT).exists() for name in ("alone", "beside"))


def test_a_due_checkpoint_waits_for_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    """It does not come before that of the task's end, which does not count as one of a later step."""
    places: list[tuple[int, ...]] = []
    write = running.write_checkpoint

    def noted(path: Path, tensors: Any, description: dict[str, Any]) -> None:
        places.append(tuple(description["place"]))
        write(path, tensors, description)

    monkeypatch.setattr(running, "write_checkpoint", noted)
    beside(short(), tmp_path, checkpoint_seconds=0.02)
    assert places == sorted(places) and {(1, 0, 0), (2, 0, 0), (3, 0, 0)} <= set(places)
