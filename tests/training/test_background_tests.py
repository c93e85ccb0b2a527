"""Tests that are under way while a run learns on: what follows from them keeps its order, and errors come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from digit_streams import made
from torch import Tensor

from sncl import Learner
from sncl.networks.mlp import MLP
from sncl.streams.stream import Stream
from sncl.streams.transforms import Unit
from sncl.tensors.fields import Inputs
from sncl.training import parallel, side_by_side
from sncl.training.background_tests import BackgroundTests
from sncl.training.evaluate import Assessment, assessed
from sncl.training.parallel import sharing_cores
from sncl.training.side_by_side import Cores
from sncl.training.snapshot import Snapshot


class Gate:
    """Lets snapshots predict when it is open; counts how many do so at a time, and how many parts they were given."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.now = self.most = self.parts = 0
        self.counting = threading.Lock()

    def logits(self, logits: object, snapshot: Snapshot, x: Inputs, task: int | None = None) -> Tensor:
        with self.counting:
            self.now, self.parts = self.now + 1, self.parts + 1
            self.most = max(self.most, self.now)
        assert self.open.wait(30)
        try:
            return logits(snapshot, x, task)  # type: ignore[operator]
        finally:
            with self.counting:
                self.now -= 1


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """On three cores, with test sets that are large enough."""
    found, logits = Gate(), Snapshot.logits
    monkeypatch.setattr(parallel, "cores", lambda: 3)
    monkeypatch.setattr(side_by_side, "EVALUATION_BATCH", 16)
    monkeypatch.setattr(side_by_side, "FEWEST_SAMPLES", 32)
    monkeypatch.setattr(Snapshot, "logits", lambda *given, **named: found.logits(logits, *given, **named))
    with sharing_cores():
        yield found
    found.open.set()


@pytest.fixture
def learned() -> tuple[Learner, Stream]:
    stream = made("seq-digits", tasks=2)
    torch.manual_seed(0)
    learner = Learner(MLP(64, 10, width=16), "er", memory=20, device="cpu", transform=Unit())
    learner.learn(*stream.batch(0, torch.arange(32)))
    return learner, stream


def test_all_that_follows_waits_and_keeps_its_order(gate: Gate, learned: tuple[Learner, Stream]) -> None:
    learner, stream = learned
    expected = assessed_now(learner, stream, gate)
    done: list[object] = []
    with BackgroundTests() as tests:
        tests.behind(partial(done.append, "first"))
        tests.begin(learner, stream, range(2), done.append, beside=True)
        tests.behind(partial(done.append, "second"))
        tests.behind(lambda: tests.behind(partial(done.append, "third")))  # done in its place
        tests.behind(partial(done.append, "fourth"))
        learner.learn(*stream.batch(0, torch.arange(32, 64)))  # which changes nothing about them
        tests.look()
        assert done == ["first"]
        gate.open.set()
        tests.finish()
        assert done[0] == "first" and done[2:] == ["second", "third", "fourth"]
        tests.behind(partial(done.append, "fifth"))
        assert done[5:] == ["fifth"]
        tests.finish()
    assert isinstance(done[1], Assessment) and done[1][:2] == expected[:2]
    assert assessed_now(learner, stream, gate)[:2] != expected[:2]


def assessed_now(learner: Learner, stream: Stream, gate: Gate) -> Assessment:
    """On one core."""
    with sharing_cores(3):
        return assessed(learner, stream, range(2))


def test_tests_that_were_made_are_taken_in_at_the_next_look(gate: Gate, learned: tuple[Learner, Stream]) -> None:
    gate.open.set()
    done: list[object] = []
    with BackgroundTests() as tests:
        tests.begin(*learned, range(2), done.append, beside=True)
        for _ in range(3000):
            tests.look()
            if done:
                break
            threading.Event().wait(0.01)
    assert len(done) == 1


def test_the_core_that_learns_is_left_alone_until_it_waits(
    gate: Gate, learned: tuple[Learner, Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    lend = Cores.lend

    def lent(cores: Cores) -> None:
        assert gate.most == 2
        lend(cores)
        for _ in range(3000):
            if gate.most == 3:
                break
            threading.Event().wait(0.01)
        gate.open.set()

    monkeypatch.setattr(Cores, "lend", lent)
    with BackgroundTests() as tests:
        tests.begin(*learned, range(2), lambda found: None, beside=True)
        while gate.most < 2:
            threading.Event().wait(0.01)
        threading.Event().wait(0.1)
    assert gate.most == 3


@pytest.mark.parametrize("beside", [True, False])
def test_with_one_core_or_not_beside_learning_they_are_made_at_once(
    gate: Gate, learned: tuple[Learner, Stream], beside: bool
) -> None:
    gate.open.set()
    done: list[object] = []
    with sharing_cores(3 if beside else 1):
        tests = BackgroundTests()
        tests.begin(*learned, range(2), done.append, beside=beside)
        assert len(done) == 1 and (gate.parts == 0) == beside
        tests.behind(partial(done.append, "second"))
    assert done[1:] == ["second"]


class Trouble(Exception):
    pass


def fails(*_: object, **__: object) -> Tensor:
    raise Trouble("in a thread")


def test_an_error_in_the_tests_comes_back_once_and_drops_what_waits(
    monkeypatch: pytest.MonkeyPatch, gate: Gate, learned: tuple[Learner, Stream]
) -> None:
    monkeypatch.setattr(Snapshot, "logits", fails)
    done: list[object] = []
    tests = BackgroundTests()
    with pytest.raises(Trouble, match="in a thread"), tests:
        tests.begin(*learned, range(2), done.append, beside=True)
        tests.behind(partial(done.append, "second"))
        tests.finish()
    tests.finish()
    assert done == []


def test_an_error_in_what_follows_drops_the_rest(gate: Gate, learned: tuple[Learner, Stream]) -> None:
    gate.open.set()
    done: list[object] = []
    with pytest.raises(Trouble), BackgroundTests() as tests:
        tests.begin(*learned, range(2), done.append, beside=True)
        tests.behind(fails)
        tests.behind(partial(done.append, "third"))
    assert len(done) == 1


def test_an_error_meanwhile_waits_for_what_comes_first(gate: Gate, learned: tuple[Learner, Stream]) -> None:
    done: list[object] = []
    with pytest.raises(Trouble, match="while learning"), BackgroundTests() as tests:
        tests.begin(*learned, range(2), done.append, beside=True)
        tests.behind(partial(done.append, "second"))
        gate.open.set()
        raise Trouble("while learning")
    assert len(done) == 2


def test_to_be_stopped_meanwhile_waits_for_nothing(gate: Gate, learned: tuple[Learner, Stream]) -> None:
    done: list[object] = []
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt), BackgroundTests() as tests:
        tests.begin(*learned, range(2), done.append, beside=True)
        while gate.most < 2:
            threading.Event().wait(0.01)
        threading.Timer(0.1, gate.open.set).start()  # what is predicted now is predicted to its end
        raise KeyboardInterrupt
    assert done == [] and gate.parts <= 3  # of 18
    assert threading.active_count() <= threads + 1  # the timer
