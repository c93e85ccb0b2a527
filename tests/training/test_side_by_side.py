"""Tests of a run on several cores: the bits of one core, and threads only where they may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from digit_streams import made
from torch import Tensor, nn

from sncl import SnclError
from sncl.methods.table import METHODS
from sncl.networks.mlp import MLP
from sncl.runs.build import make_learner
from sncl.runs.plan import plan
from sncl.streams.stream import Stream
from sncl.streams.transforms import Unit
from sncl.training import parallel, predicting, side_by_side
from sncl.training.evaluate import Assessment, assessed
from sncl.training.learner import Learner
from sncl.training.parallel import SHARE, sharing_cores
from sncl.training.snapshot import Snapshot

PART = 16  # samples at a time, in place of 500: the digits have few


class OwnNet(nn.Module):
    """A network that must not be called twice at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.threads.add(threading.get_ident())
        return self.layer(x.flatten(1))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The threads in which snapshots predicted, on three cores, with parts and test sets that are large enough."""
    found: set[int] = set()
    logits = Snapshot.logits

    def noted(snapshot: Snapshot, x: Any, task: int | None = None) -> Tensor:
        found.add(threading.get_ident())
        assert torch.get_num_threads() == 1  # that of the run, of which sums depend
        return logits(snapshot, x, task)

    monkeypatch.setattr(parallel, "cores", lambda: 3)
    monkeypatch.setattr(predicting, "EVALUATION_BATCH", PART)
    monkeypatch.setattr(side_by_side, "EVALUATION_BATCH", PART)
    monkeypatch.setattr(side_by_side, "FEWEST_SAMPLES", 2 * PART)
    monkeypatch.setattr(Snapshot, "logits", noted)
    yield found


def learned(method: str) -> tuple[Learner, Stream]:
    """A learner behind the first task of the digits."""
    experiment = plan("seq-digits", method, memory=40, tasks=2, epochs=1, device="cpu")
    stream = made("seq-digits", tasks=2)
    learner = make_learner(experiment, stream)
    for positions in stream.positions(0, 0):
        learner.learn(*stream.batch(0, positions))
    learner.boundary(*stream.batch(0, torch.arange(len(stream.phases[0].rows))))
    return learner, stream


def same(ours: Assessment, theirs: Assessment) -> bool:
    assert ours.confusion is not None and theirs.confusion is not None
    return ours[:2] == theirs[:2] and torch.equal(ours.confusion, theirs.confusion)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_assessed_as_on_one_core(method: str, threads: set[int]) -> None:
    learner, stream = learned(method)
    alone = assessed(learner, stream, range(2))
    assert not threads
    with sharing_cores():
        beside = assessed(learner, stream, range(2))
    assert same(beside, alone)
    assert 0 < len(threads) <= 3 and threading.get_ident() not in threads
    x, _ = stream.test(1)
    with sharing_cores(), side_by_side.predictions(learner, [len(x)]) as logits:
        assert torch.equal(logits(x, 1), learner.logits(x, 1))


def test_few_samples_and_one_core_are_not_worth_a_copy(threads: set[int]) -> None:
    learner, stream = learned("er")
    with sharing_cores(3):
        assessed(learner, stream, range(2))
    for sizes in ([2 * PART - 1], [PART, PART]):  # too few in all; no set that has parts
        with sharing_cores(), side_by_side.predictions(learner, sizes) as logits:
            logits(stream.test(0)[0], 0)
    assert not threads


def test_a_network_of_your_own_is_called_by_one_thread(threads: set[int]) -> None:
    _, stream = learned("er")
    net = OwnNet()
    learner = Learner(net, "er", memory=20, device="cpu", transform=Unit())
    learner.learn(*stream.batch(0, torch.arange(8)))
    with sharing_cores():
        assessed(learner, stream, range(2))
    assert net.threads == {threading.get_ident()} and not threads


def test_what_cannot_be_copied_is_tested_all_the_same(monkeypatch: pytest.MonkeyPatch, threads: set[int]) -> None:
    learner, stream = learned("er")
    alone = assessed(learner, stream, range(2))

    def refuse(_: Learner) -> Snapshot:
        raise SnclError("this learner cannot be copied")

    monkeypatch.setattr(Learner, "snapshot", refuse)
    with sharing_cores():
        assert same(assessed(learner, stream, range(2)), alone)
    assert not threads


def test_the_weights_as_trained_are_tested_and_not_their_average(threads: set[int]) -> None:
    torch.manual_seed(0)
    _, stream = learned("er")
    learner = Learner(MLP(64, 10, width=16), "er", memory=20, device="cpu", transform=Unit(), ema=0.999, lr=0.5)
    for positions in stream.positions(0, 0):
        learner.learn(*stream.batch(0, positions))
    x, _ = stream.test(0)

    def logits() -> Tensor:
        with sharing_cores(), side_by_side.predictions(learner, [2 * PART]) as predicted:
            return predicted(x, 0)

    average = logits()
    with learner.as_trained():
        trained = logits()
        assert torch.equal(trained, learner.logits(x))
    assert threads and torch.equal(average, learner.logits(x)) and not torch.equal(average, trained)


def test_runs_beside_each_other_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    assert SHARE.get() == 1
    with sharing_cores(3):
        assert SHARE.get() == 2
    with sharing_cores():
        assert SHARE.get() == 8
    assert SHARE.get() == 1
