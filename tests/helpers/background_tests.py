"""Runs on two cores whose tests take as many steps as is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sncl.training import parallel, predicting, side_by_side
from sncl.training.learner import Learner
from sncl.training.side_by_side import Cores
from sncl.training.snapshot import Snapshot

PART = 16  # samples at a time, in place of 500: the digits have few
LONGEST = 30.0  # seconds that a test is held up, where a run forgets it


class Slow:
    """Tests beside learning end ``steps`` steps later, or when a run waits for them. ``begun`` counts them, ``since``
    the steps since the last ones began."""

    def __init__(self) -> None:
        self.steps = 5
        self.begun = self.since = 0
        self.go = threading.Event()


@contextmanager
def slow_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """Two cores, and parts and test sets of the digits that are large enough for them."""
    slow, learn, logits, begin, lend = Slow(), Learner.learn, Snapshot.logits, Cores.begin, Cores.lend

    def begins(cores: Cores, predict: Any) -> Any:
        slow.begun, slow.since = slow.begun + 1, 0
        slow.go.clear()
        return begin(cores, predict)

    def learns(learner: Learner, *batch: Any) -> Any:
        slow.since += 1
        if slow.since > slow.steps:
            slow.go.set()
        return learn(learner, *batch)

    def waits(snapshot: Snapshot, *given: Any, **named: Any) -> Any:
        slow.go.wait(LONGEST)
        return logits(snapshot, *given, **named)

    def lends(cores: Cores) -> None:
        slow.go.set()
        lend(cores)

    def closes(cores: Cores) -> None:
        slow.go.set()
        close(cores)

    close = Cores.close
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    monkeypatch.setattr(predicting, "EVALUATION_BATCH", PART)
    monkeypatch.setattr(side_by_side, "EVALUATION_BATCH", PART)
    monkeypatch.setattr(side_by_side, "FEWEST_SAMPLES", 2 * PART)
    for owner, name, method in (
        (Learner, "learn", learns),
        (Snapshot, "logits", waits),
        (Cores, "begin", begins),
        (Cores, "lend", lends),
        (Cores, "close", closes),
    ):
        monkeypatch.setattr(owner, name, method)
    yield slow
