"""What is known of one run from the moments it told: speed, time left, smoothed losses, the last evaluation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from sncl.live.terminal import printable
from sncl.training.events import Evaluation, Moment

SMOOTHING = 0.9  # of a loss, from one line of the log to the next
RECENT_SECONDS = 10.0  # that the speed is an average over
KEPT_LOSSES = 200  # about as many as a run tells

State = Literal["waiting", "reading", "running", "done", "stopped"]


class Followed:
    """One run. Whoever draws it may do so from another thread: values are replaced, never changed."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.title = printable(title)
        self.clock = clock
        self.state: State = "waiting"
        self.moment: Moment | None = None
        self.evaluation: Evaluation | None = None
        self.losses: dict[str, float] = {}  # smoothed
        self.courses: dict[str, tuple[float, ...]] = {}  # the smoothed losses over time
        self.steps_per_s: float | None = None
        self.rows_per_s: float | None = None
        self.seconds_left: float | None = None
        self._first: tuple[float, int, int] | None = None
        self._recent: deque[tuple[float, int, int]] = deque()

    def tell(self, moment: Moment | None) -> None:
        """Take in what the run says; None: it has ended."""
        if moment is None:
            whole = self.moment is None or self.moment.steps == self.moment.total
            self.state = "done" if whole and self.state != "reading" else "stopped"
            self.seconds_left = None
            return
        self.state = "reading" if moment.reading else "running"
        self.moment = moment
        self._pace(moment)
        if moment.evaluation is not None:
            self.evaluation = moment.evaluation
        if moment.losses:
            self.losses = {
                name: SMOOTHING * self.losses.get(name, value) + (1 - SMOOTHING) * value
                for name, value in moment.losses.items()
            }
            self.courses = {
                name: (*self.courses.get(name, ()), value)[-KEPT_LOSSES:] for name, value in self.losses.items()
            }

    def _pace(self, moment: Moment) -> None:
        """Speed over the last seconds, evaluations included; time left by the average since the run was started."""
        if moment.reading:
            return
        here = (self.clock(), moment.steps, moment.rows)
        if self._first is None:
            self._first = here
        self._recent.append(here)
        while here[0] - self._recent[0][0] > RECENT_SECONDS and len(self._recent) > 2:
            self._recent.popleft()
        begun, steps, rows = self._recent[0]
        if here[0] > begun and moment.steps > steps:
            self.steps_per_s = (moment.steps - steps) / (here[0] - begun)
            self.rows_per_s = (moment.rows - rows) / (here[0] - begun)
            begun, steps, _ = self._first
            self.seconds_left = (moment.total - moment.steps) * (here[0] - begun) / (moment.steps - steps)

    @property
    def parts(self) -> tuple[float, float]:
        """How much of the run is done, from 0 to 1, and how much was when it was started or resumed."""
        ended = self.state in ("done", "stopped")
        if self.moment is None or self._first is None:
            return (1.0, 1.0) if ended else (0.0, 0.0)
        return 1.0 if ended else self.moment.steps / self.moment.total, self._first[1] / self.moment.total

    @property
    def accuracy(self) -> dict[str, float]:
        """The average over the tasks seen by the last evaluation, by read-out."""
        return self.evaluation.means() if self.evaluation is not None else {}

    @property
    def inside(self) -> dict[str, Any]:
        """What the network and its memory looked like then."""
        return self.evaluation.inside if self.evaluation is not None else {}

    @property
    def open_part(self) -> float | None:
        """The part of all gated neurons that was open then."""
        layers = self.inside.get("open_neurons")
        if not layers:
            return None
        is_open, neurons = (sum(each) for each in zip(*layers.values(), strict=True))
        return float(is_open / neurons)
