"""Tests that are under way while the next task is learned, where a core would lie idle.

They are made with a snapshot, so learning changes nothing about them. What follows from them, and all that is told or
written behind it, waits and keeps its order, as if learning had waited.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from sncl.streams.stream import Stream
from sncl.training.evaluate import Assessment, assessed, assessment, readouts_of, tested_sizes
from sncl.training.learner import Learner
from sncl.training.side_by_side import Cores, cores_for


class BackgroundTests:
    """The tests of one run: one set of them at a time, and what waits for it.

    A block of it ends with them. An error in the block waits for what belongs in front of it; to be stopped there does
    not.
    """

    def __init__(self) -> None:
        self._cores: Cores | None = None
        self._tests: Future[Assessment]
        self._waiting: list[Callable[[], None]] = []

    def begin(
        self, learner: Learner, stream: Stream, tasks: range, then: Callable[[Assessment], None], beside: bool
    ) -> None:
        """Test a learner as it is now, and do ``then`` with what was found: later, if ``beside`` learning, or here."""
        self.finish()
        self._cores = cores_for(learner, tested_sizes(stream, tasks)) if beside else None
        if self._cores is None:
            then(assessed(learner, stream, tasks))
            return
        readouts = readouts_of(learner, stream)
        self._tests = self._cores.begin(partial(assessment, stream, tasks, readouts))
        self._waiting = [lambda: then(self._tests.result())]

    def behind(self, act: Callable[[], None]) -> None:
        """Do this behind the tests and what was to be done before: now, where none are under way."""
        if self._cores is None:
            act()
        else:
            self._waiting.append(act)

    def look(self) -> None:
        """Do what waits, if the tests have been made."""
        if self._cores is not None and self._tests.done():
            self.finish()

    def finish(self) -> None:
        """Wait for the tests, on all cores, and do what waits for them; an error drops the rest."""
        if self._cores is None:
            return
        self._cores.lend()
        try:
            self._tests.exception()  # waits
        finally:
            waiting = self._drop()
        for act in waiting:
            act()

    def _drop(self) -> list[Callable[[], None]]:
        """Leave off; returns what has not been done."""
        cores, self._cores = self._cores, None
        waiting, self._waiting = self._waiting, []
        if cores is not None:
            cores.close()
        return waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None or issubclass(kind, Exception):
            self.finish()
        else:
            self._drop()
