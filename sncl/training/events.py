"""What a run tells whoever watches it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sncl.evaluation.collapse import Collapse, warning_of
from sncl.evaluation.metrics import Row, mean

if TYPE_CHECKING:
    from sncl.evaluation.accuracy import Readout

TOLD_SECONDS = 0.2  # between two moments that say nothing but how far a run is


class Evaluation(NamedTuple):
    """What an evaluation found: the accuracy on each learned task by read-out, the run's diagnostics, and the tasks
    that were not learned, nor brought back by the next one."""

    tested: dict[Readout, Row]
    inside: dict[str, Any]
    collapsed: tuple[Collapse, ...] = ()

    def means(self) -> dict[str, float]:
        """The average over the tasks learned."""
        return {readout: mean(row) for readout, row in self.tested.items()}

    def warning(self) -> str | None:
        """What to say where the network has fallen to chance."""
        if not self.collapsed:
            return None
        return warning_of(self.collapsed[0], only=all(len(row) == 1 for row in self.tested.values()))


class Moment(NamedTuple):
    """Where a run is, and what is new."""

    steps: int
    total: int
    task: int
    tasks: int
    losses: dict[str, float] | None = None
    accuracy: dict[str, float] | None = None
    reading: bool = False  # the data are still being read; steps and total count images
    epoch: int = 0
    epochs: int = 1
    rows: int = 0  # samples learned since the run was started or resumed
    memory: tuple[int, int] | None = None  # samples held, and how many may be
    evaluation: Evaluation | None = None  # when there is a new one, and once when a run is resumed


Watch = Callable[[Moment], None]


def sparingly(watch: Watch) -> Watch:
    """Tell of losses and scores, and of all other moments a few in a second."""
    told = -math.inf

    def tell(moment: Moment) -> None:
        nonlocal told
        now = time.monotonic()
        if moment.losses is not None or moment.accuracy is not None or now - told >= TOLD_SECONDS:
            told = now
            watch(moment)

    return tell
