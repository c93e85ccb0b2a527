"""One choice of settings and its scores: accuracies on held-out training data, never on test data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sncl.methods.table import Settings
from sncl.runs.summary import mean_std


class Trial(NamedTuple):
    """One choice of settings and what came of it. ``state`` is complete, pruned, failed, running or waiting."""

    number: int
    state: str
    params: Settings
    scores: list[float]
    seconds: float | None
    reason: str | None
    default: bool

    @property
    def score(self) -> float | None:
        return mean_std(self.scores)[0] if self.state == "complete" else None

    def shown(self) -> str:
        """Mean and standard deviation over seeds."""
        mean, deviation = mean_std(self.scores)
        return f"{mean:.2f} ± {deviation:.2f}"

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"score": self.score}


def ranking(trials: Sequence[Trial]) -> list[Trial]:
    """The complete ones, best first; of equal ones the earlier, so that nothing replaces the defaults for no gain."""
    complete = [trial for trial in trials if trial.score is not None]
    return sorted(complete, key=lambda trial: (-(trial.score or 0.0), not trial.default, trial.number))


def default_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial of the shipped defaults that got furthest: one that was killed is tried again under another number."""
    of_defaults = [trial for trial in trials if trial.default]
    return max(of_defaults, key=lambda trial: (trial.state == "complete", trial.number), default=None)


def count_states(trials: Sequence[Trial]) -> dict[str, int]:
    """How many trials were complete, pruned and failed."""
    return {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
