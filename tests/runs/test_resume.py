"""A run that is killed and started again ends with the same bits as one that was left alone.

Three ways: real processes of the command line killed with SIGKILL, for every method; in this process, a crash at every
step and in the middle of writing; and a disk that is full.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from forks import PRELOADED
from run_folders import differences, same_run

from sncl.cli import main
from sncl.errors import SnclError
from sncl.methods.table import METHODS, Settings, make
from sncl.networks.mlp import MLP
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.streams.build import build
from sncl.streams.datasets.sources import Dataset, load
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields
from sncl.training import run as running
from sncl.training.checkpoint import read_checkpoint, read_json
from sncl.training.evaluate import Scores
from sncl.training.events import Moment
from sncl.training.learner import Learner
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT, run

pytestmark = pytest.mark.slow


def test_differences_are_found(tmp_path: Path) -> None:
    for seed in (0, 1):
        perform(plan("seq-digits", "sncl", memory=20, tasks=1, epochs=1, seed=seed, device="cpu"), tmp_path / str(seed))
    found = differences(tmp_path / "0", tmp_path / "1")
    assert {"network/layer1.0.weight", "memory/rows/x", "memory/rows/loss", LOG} <= set(found)
    assert {"random/view", "random/admission", "random/replay 0", "random/replay 1", "random/gates"} <= set(found)
    assert differences(tmp_path / "0", tmp_path / "0") == []


# --- real processes, really killed -------------------------------------------------------------------------------


def processes() -> multiprocessing.context.ForkServerContext:
    """Fresh processes that need not load torch each time: they are forked off one that has done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    return context


def begin(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> BaseProcess:
    """The command line in a process of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["sncl", *arguments])  # the new process takes it over
        process = processes().Process(target=main)
        process.start()
    return process


def steps_stored(folder: Path) -> int:
    """How far the checkpoint in the folder is, as anyone may look while it is being written."""
    path = folder / CHECKPOINT
    return int(read_checkpoint(path)[1]["learner"]["steps"]) if path.exists() else 0


MANY_GRADIENTS = {"mer", "gem", "gss", "hal"}  # for each step, so fewer and smaller ones
QUICK = {"sgd", "joint"}  # whose few steps would be made before anybody looks


def case(method: str) -> Any:
    """Two tasks of seq-digits. GSS spends seconds of every start on loading what torch takes gradients by row with."""
    small = ["--epochs", "1", "--set", "width=16"]
    options = small if method in MANY_GRADIENTS else ["--epochs", "30" if method in QUICK else "8"]
    marks = [pytest.mark.slow] if method == "gss" else []
    return pytest.param("seq-digits", method, ["--tasks", "2", *options], marks=marks)


CASES = [
    *(case(method) for method in METHODS),
    ("rot-digits", "sncl", ["--tasks", "2", "--epochs", "1"]),
    ("seq-digits", "sncl", ["--tasks", "2", "--epochs", "3", "--set", "gates=kl"]),
    ("digits-360", "sncl", ["--set", "batch_size=8"]),
    ("digits-360", "derpp", ["--set", "batch_size=8"]),
]


@pytest.mark.parametrize(
    ("stream", "method", "options"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_killed_at_random_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, method: str, options: list[str]
) -> None:
    command = ["train", "--stream", stream, "--method", method, "--memory", "40", "--device", "cpu", *options]
    alone = begin([*command, "--out", str(tmp_path / "alone")], monkeypatch)
    killed, kills, chance = tmp_path / "killed", 0, random.Random(f"{stream} {method}")
    alone.join()
    assert alone.exitcode == 0
    result = read_json(tmp_path / "alone" / "result.json")
    parts = (0.3,) if method == "gss" else (0.0, 0.2, 0.4)  # of the run: long before its end, so that it is alive
    for part in parts:
        moment = round((part + chance.uniform(0, 0.2)) * result["steps"])
        process = begin([*command, "--out", str(killed), "--checkpoint", "0.005"], monkeypatch)
        while steps_stored(killed) < moment and process.is_alive():
            time.sleep(0.003)
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert not (killed / "result.json").exists() or process.exitcode == 0
    assert kills >= min(2, len(parts))
    last = begin([*command, "--out", str(killed), "--checkpoint", "0.005"], monkeypatch)
    last.join()
    assert last.exitcode == 0
    assert same_run(tmp_path / "alone", killed)


@pytest.mark.slow
def test_killed_as_a_program_of_its_own(tmp_path: Path) -> None:
    """The same once more with nothing shared at all: the interpreter, started and killed from outside."""
    command = [sys.executable, "-m", "sncl.cli", "train", "--stream", "seq-digits", "--method", "derpp"]
    command += ["--epochs", "5"]
    perform(plan("seq-digits", "derpp", epochs=5, device="cpu"), tmp_path / "alone")
    assert steps_stored(tmp_path / "alone") > 2 * running.LOG_LINES  # so that not every step writes a line
    killed = tmp_path / "killed"
    process = subprocess.Popen([*command, "--out", str(killed), "--checkpoint", "0.02"])
    while steps_stored(killed) < 222 and process.poll() is None:
        time.sleep(0.003)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*command, "--out", str(killed)], check=True, capture_output=True)
    assert differences(tmp_path / "alone", killed) == []


def test_interrupted_from_the_keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["train", "--stream", "seq-digits", "--method", "derpp", "--device", "cpu"]
    folder = tmp_path / "stopped"
    process = begin([*command, "--out", str(folder), "--checkpoint", "0.01"], monkeypatch)
    while steps_stored(folder) < 30 and process.is_alive():
        time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert not (folder / "result.json").exists()
    assert steps_stored(folder) >= 30


# --- crashes in this process, at every step and in the middle of writing --------------------------------------------


class Crash(BaseException):
    """The end of the process as far as the run can tell."""


@cache
def few_digits() -> Dataset:
    """Four digits, 18 images each: two tasks of five batches (8, 8, 8, 8, 4)."""
    whole = load("digits", Path())
    rows = torch.cat([(whole.train_y == digit).nonzero()[:18, 0] for digit in range(4)])
    tests = torch.cat([(whole.test_y == digit).nonzero()[:5, 0] for digit in range(4)])
    return Dataset("digits", whole.train_x[rows], whole.train_y[rows], whole.test_x[tests], whole.test_y[tests], 4)


def tasks() -> Stream:
    return build("seq-digits", split="2x2", tasks=2, batch_size=8, dataset=few_digits())


def joint() -> Stream:
    return tasks().joint()


@cache
def general() -> Stream:
    return build("digits-360", batch_size=64)


class Setting(NamedTuple):
    stream: Callable[[], Stream]
    method: str
    epochs: int
    steps: int
    changed: Settings | None = None


SETTINGS = {
    "sncl": Setting(tasks, "sncl", 2, 20, {"start": 0.2, "fill": 0.2}),  # neurons open until the end of the run
    "paper's gates": Setting(tasks, "sncl", 2, 20, {"gates": "kl"}),
    "derpp": Setting(tasks, "derpp", 2, 20),
    "joint": Setting(joint, "joint", 2, 18),
    "360, sncl": Setting(general, "sncl", 1, 0),
    "360, derpp": Setting(general, "derpp", 1, 0),
}
ENDS = {"sncl": (5, 10, 15, 20), "derpp": (5, 10, 15, 20), "joint": (9, 18)}  # the steps that end an epoch


def go(setting: Setting, folder: Path, watch: Callable[[Moment], None] | None = None, every: float = 0.0) -> Scores:
    """Start the run, or start it again, with a learner that knows nothing."""
    folder.mkdir(exist_ok=True)
    stream = setting.stream()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        net = MLP(64, stream.classes, 12)
    learner = Learner(
        net,
        make(setting.method, setting.changed),
        memory=11,
        replay=5,
        lr=0.1,
        transform=stream.transform,
        seed=2,
        device="cpu",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "LOG_LINES", 6)  # a line every few steps, as in a long run
        return run(learner, stream, setting.epochs, folder, {"name": setting.method}, watch, every)


def crash_at(step: int, scored: bool = False) -> Callable[[Moment], None]:
    """Crash behind the update of a step, or behind the scoring of the task that it ends."""

    def watch(moment: Moment) -> None:
        if moment.steps == step and (moment.accuracy is not None) == scored:
            raise Crash

    return watch


@pytest.mark.parametrize("name", SETTINGS)
def test_a_crash_behind_every_single_step(tmp_path: Path, name: str) -> None:
    """One run that gets one step further with each start, since it crashes right behind the next checkpoint."""
    setting = SETTINGS[name]
    scores = go(setting, tmp_path / "alone")
    steps = steps_stored(tmp_path / "alone")
    assert setting.steps in (0, steps)
    for step in range(2, steps + 1):
        with pytest.raises(Crash):
            go(setting, tmp_path / "crashed", crash_at(step))
        assert steps_stored(tmp_path / "crashed") == step - 1
    again = go(setting, tmp_path / "crashed")
    assert differences(tmp_path / "alone", tmp_path / "crashed") == []
    assert (again.matrices, again.untrained, again.open_by_task) == (
        *(scores.matrices, scores.untrained, scores.open_by_task),
    )


def test_neurons_are_opened_all_the_way(tmp_path: Path) -> None:
    """So that every crash of these tests is in the middle of growth."""
    opened: list[int] = []

    def count(moment: Moment) -> None:
        state = read_checkpoint(tmp_path / "run" / CHECKPOINT)[0] if moment.steps > 1 else {}
        opened.append(int(sum(value.sum() for name, value in state.items() if name.endswith(".opened"))))

    go(SETTINGS["sncl"], tmp_path / "run", count)
    assert opened == sorted(opened) and len(set(opened)) > 6 and opened[-1] < 24


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["every step stored", "only task ends stored"])
@pytest.mark.parametrize("name", ["sncl", "derpp"])
def test_a_crash_at_any_step(tmp_path: Path, name: str, every: float) -> None:
    setting = SETTINGS[name]
    go(setting, tmp_path / "alone", every=every)
    for step in range(1, setting.steps + 1) if every else (1, 5, 10, 20):
        for scored in (False, True) if step in (10, 20) else (False,):
            folder = tmp_path / f"{step} {scored}"
            with pytest.raises(Crash):
                go(setting, folder, crash_at(step, scored), every)
            stored = step - 1 if every == 0 else (step - 1) // 10 * 10
            assert (steps_stored(folder)) == stored
            go(setting, folder, every=every)
            assert differences(tmp_path / "alone", folder) == []


@pytest.mark.parametrize("damage", ["before the new name", "half written", "behind the new name"])
@pytest.mark.parametrize("name", ["sncl", "derpp", "joint"])
def test_a_crash_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    setting = SETTINGS[name]
    go(setting, tmp_path / "alone")
    replace = os.replace
    for step in (1, 2, *ENDS[name], setting.steps - 1):  # in the first epoch, at the ends of epochs and of tasks
        writes = 0

        def interrupted(source: Path, target: Path, step: int = step) -> None:
            nonlocal writes
            writes += 1
            if writes == step:
                if damage == "half written":
                    os.truncate(source, os.stat(source).st_size // 2)
                if damage == "behind the new name":
                    replace(source, target)
                raise Crash
            replace(source, target)

        folder = tmp_path / str(step)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", interrupted)
            with pytest.raises(Crash):
                go(setting, folder)
        assert steps_stored(folder) == (step if damage == "behind the new name" else step - 1)
        assert len(list(folder.glob(".*.part"))) == (damage != "behind the new name")
        go(setting, folder)
        assert differences(tmp_path / "alone", folder) == []


def test_a_log_longer_than_the_checkpoint_knows_is_cut_back(tmp_path: Path) -> None:
    """Also when no line is written before the next crash: the run is not to take the old length for the new one."""
    setting, folder = SETTINGS["sncl"], tmp_path / "crashed"
    go(setting, tmp_path / "alone")
    with pytest.raises(Crash):
        go(setting, folder, crash_at(4))  # lines are written at 3, 6, 9, ...
    with (folder / LOG).open("ab") as file:
        file.write(b'{"event": "losses", "step": 4, "los')
    with pytest.raises(Crash):
        go(setting, folder, crash_at(6))
    go(setting, folder)
    assert differences(tmp_path / "alone", folder) == []


def test_a_lost_log_is_not_filled_with_zeros(tmp_path: Path) -> None:
    setting, folder = SETTINGS["derpp"], tmp_path / "crashed"
    go(setting, tmp_path / "alone")
    with pytest.raises(Crash):
        go(setting, folder, crash_at(12))
    (folder / LOG).unlink()
    go(setting, folder)
    whole, rest = (tmp_path / "alone" / LOG).read_bytes(), (folder / LOG).read_bytes()
    assert rest.startswith(b"{")
    assert whole.endswith(rest)


def test_a_full_disk_stops_the_run_and_it_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, folder, fsync = SETTINGS["sncl"], tmp_path / "full", os.fsync
    go(setting, tmp_path / "alone")
    calls = 0

    def full(number: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 15:
            raise OSError(28, "No space left on device")
        fsync(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((SnclError, OSError), match="No space left on device"):
            go(setting, folder)
    assert 0 < steps_stored(folder) < setting.steps
    go(setting, folder)
    assert differences(tmp_path / "alone", folder) == []


def test_a_checkpoint_of_another_run_is_left_alone(tmp_path: Path) -> None:
    go(SETTINGS["derpp"], tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(SnclError, match="checkpoint of another experiment"):
        go(SETTINGS["sncl"], tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_checkpoint_holds_network_gates_memory_and_generators(tmp_path: Path) -> None:
    setting = SETTINGS["sncl"]
    go(setting, tmp_path / "alone")
    end: Fields = read_checkpoint(tmp_path / "alone" / CHECKPOINT)[0]
    assert {name.partition("/")[0] for name in end} == {"network", "method", "memory", "random", "example", "scores"}
    assert len([name for name in end if name.startswith("network/") and name.endswith(".opened")]) == 2
    assert {name for name in end if name.startswith("random/")} >= {
        *("random/view", "random/admission", "random/replay 0", "random/replay 1"),
        *("random/replay view 0", "random/replay view 1", "random/gates"),
    }
    kept: dict[str, Any] = {name: value.shape[0] for name, value in end.items() if name.startswith("memory/rows/")}
    assert set(kept) == {
        *("memory/rows/x", "memory/rows/y", "memory/rows/logits", "memory/rows/loss"),
        *("memory/rows/features/layer1.1", "memory/rows/features/layer2.1"),
    }
    assert set(kept.values()) == {11}
