"""Learning in order: lessons, and the teacher that gives them to the model and shows others what it knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple

from sncl.errors import Diverged, SnclError
from sncl.serving.ledger import Ledger
from sncl.serving.models import UNFIT, ServedModel

REFRESH = 0.1  # seconds that a view is used while more waits to be learned


class Lesson(NamedTuple):
    """An acknowledged request to learn."""

    number: int
    rows: list[Any]
    labels: list[Any]
    wait: bool  # somebody waits until predictions see it
    done: Event


class Mark(NamedTuple):
    """A snapshot is taken when everything in front of this is learned; the ledger is as it was then."""

    number: int
    ledger: Ledger


class Teacher:
    """The model, used by one thread, and its newest view, used by all."""

    def __init__(self, model: ServedModel, say: Callable[[str], None]) -> None:
        self.model, self.say = model, say
        self.learned = self.refused = 0  # rows, and requests that turned out not to fit
        self.failed = ""  # why nothing is learned any more
        self.look()

    def teach(self, rows: list[Any], labels: list[Any]) -> None:
        """Learn one request. An error that changed nothing passes it over, any other ends learning."""
        learner = self.model.learner
        before = learner.steps
        try:
            self.model.learn(rows, labels)
            self.learned += len(labels)
        except Exception as error:  # whatever it is: a thread that ended would learn nothing more without a word
            what = " ".join(str(error).split()) or type(error).__name__
            unchanged = learner.steps == before and not learner.interrupted
            if unchanged and isinstance(error, UNFIT) and not isinstance(error, Diverged):
                self.refused += 1
                self.say(f"a request could not be learned: {what}")
            else:
                self.fail(what)

    def look(self) -> None:
        """Let predictions see the model as it is now."""
        self.view, self.view_made = self.model.view(), time.monotonic()

    def show(self, later: bool) -> None:
        """Let them see what was learned: at once, or a little ``later``."""
        if not self.failed and not (later and time.monotonic() - self.view_made < REFRESH):
            try:
                self.look()
            except SnclError as error:  # weights that are no numbers any more
                self.fail(str(error))

    def fail(self, why: str) -> None:
        """From here on nothing is learned or stored."""
        self.failed = why
        self.say(f"learning has failed: {why}")
