"""One learner in two processes is the learner of one process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import group_worker
import pytest
import torch
from command_line import Sncl
from processes import left_behind
from safetensors.torch import load_file
from torch import nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.methods.sgd import SGD
from sncl.networks.taps import Tapped
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.tensors.fields import Fields
from sncl.training.group import check_shareable
from sncl.training.learner import Learner

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")]),
}
NAMES = list(group_worker.subjects())


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process leaves in the folder ``1``, and two in ``2``."""
    folder = tmp_path_factory.mktemp("group")
    alone, together = folder / "1", folder / "2"
    alone.mkdir(), together.mkdir()
    torch.set_default_dtype(torch.float64)
    try:
        group_worker.work(0, alone)
    finally:
        torch.set_default_dtype(torch.float32)
    command = [sys.executable, str(ROOT / "tests" / "helpers" / "group_worker.py"), "2"]
    workers = [subprocess.Popen([*command, str(rank), str(together)], env=ENVIRONMENT) for rank in range(2)]
    assert [each.wait(timeout=300) for each in workers] == [0, 0]
    return folder


def assert_close(ours: Fields, theirs: Fields) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.allclose(value.double(), theirs[name].double(), rtol=1e-10, atol=1e-10), name


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_learn_what_one_learns(learned: Path, name: str) -> None:
    alone, first, second = (load_file(learned / each) for each in (f"1/{name} 0", f"2/{name} 0", f"2/{name} 1"))
    assert_close(alone, first)
    assert all(torch.equal(value, second[key]) for key, value in first.items())  # the memory among them


@pytest.mark.parametrize("name", group_worker.RESUMED)
def test_a_checkpoint_goes_from_one_process_to_two_and_back(learned: Path, name: str, double: None) -> None:
    unbroken = load_file(learned / f"1/{name} 0")
    for rank in range(2):
        assert_close(unbroken, load_file(learned / f"2/{name} {rank} went on"))
    assert_close(unbroken, group_worker.went_on(group_worker.subjects()[name], learned / f"2/{name} stopped").state())


def test_what_cannot_be_shared_is_refused_in_every_process(learned: Path) -> None:
    for rank in range(2):
        batches, dropout = (learned / f"2/refused {rank}").read_text().splitlines()
        assert "different batches; give the whole batch to each" in batches
        assert "draws random numbers in training, as dropout does" in dropout and "one process" in dropout


class OwnBackward(SGD):
    def backward(self, net: Tapped, losses: Fields) -> None:
        losses["labels"].backward()  # type: ignore[no-untyped-call]


class SafeBackward(OwnBackward):
    shares_steps = True


def test_a_method_that_takes_its_gradients_itself_is_refused() -> None:
    with pytest.raises(SnclError, match=r"OwnBackward has a backward of its own.*one process"):
        check_shareable(OwnBackward())
    allowed: list[Method] = [SafeBackward(), SGD()]
    for method in allowed:
        check_shareable(method)


@pytest.mark.parametrize("group", ["all", 2])
def test_a_group_is_one_of_torch_or_auto(group: object) -> None:
    with pytest.raises(SnclError, match=r'`group` is a group of torch\.distributed or "auto", not'):
        Learner(nn.Linear(2, 2), "er", group=group)


def test_one_process_needs_no_group_and_its_learner_can_be_copied() -> None:
    learner = Learner(nn.Linear(2, 2), "er", device="cpu", group="auto")
    assert learner.group is None
    learner.learn(torch.zeros(2, 2), torch.tensor([0, 1]))
    for twin in (deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert twin.group is None


# --- torchrun ----------------------------------------------------------------------------------------------------

TRAIN = ["train", "--stream", "seq-digits", "--method", "sncl", "--memory", "40", "--epochs", "2"]


def torchrun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "sncl"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*start, *arguments], cwd=folder, env=ENVIRONMENT, text=True, start_new_session=True, **pipes
    )


def workers(launcher: int) -> list[int]:
    """The processes that torchrun started, by their numbers; each has a session of its own."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    ranks = {rank: each for each in children for rank in range(2) if is_ranked(each, rank)}
    return [int(ranks[rank]) for rank in range(2)]


def is_ranked(process: str, rank: int) -> bool:
    return f"\0RANK={rank}\0".encode() in Path(f"/proc/{process}/environ").read_bytes()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_process_ends_all_and_the_same_command_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun = torchrun(tmp_path, *TRAIN, "--out", str(run), "--checkpoint", "0.2")
    until = time.monotonic() + 120
    while not (run / "checkpoint.safetensors").exists():
        assert time.monotonic() < until and begun.poll() is None
        time.sleep(0.02)
    first, second = workers(begun.pid)
    os.kill(second, signal.SIGKILL)
    begun.communicate(timeout=120)
    assert begun.returncode != 0 and not (run / "result.json").exists()
    assert left_behind(begun.pid) + left_behind(first) + left_behind(second) == []

    out, _ = torchrun(tmp_path, *TRAIN, "--out", str(run), "--json").communicate(timeout=120)
    ours = json.loads(out)  # said once, by one of the processes
    alone = perform(plan("seq-digits", "sncl", memory=40, epochs=2, device="cpu"), tmp_path / "alone")
    assert (tmp_path / "alone" / "experiment.json").read_text() == (run / "experiment.json").read_text()
    theirs = alone.to_json()
    for readout, measures in theirs["measures"].items():  # of 360 test images one or two may fall to the other side
        assert ours["measures"][readout]["accuracy"] == pytest.approx(measures["accuracy"], abs=1.0)
    steps = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [each["step"] for each in steps if each["event"] == "losses"] == sorted(
        {each["step"] for each in steps if each["event"] == "losses"}
    )


def test_torchrun_shares_one_run_only(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = sncl("train", "--stream", "seq-digits", "--method", "er", "--seeds", "2")
    assert done.code == 2 and "share one run: give --seed, not --seeds" in done.err
