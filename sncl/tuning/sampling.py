"""How Optuna draws settings and stops trials here: numbers of two digits, and a median of the latest values."""

from __future__ import annotations

from copy import copy
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from sncl.tuning.space import Choices, Range, two_digits


class RoundingSampler(optuna.samplers.TPESampler):
    """Optuna's usual sampler, with two significant digits, so that it learns from what was run."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        drawn = super().sample_relative(study, trial, search_space)
        return {name: in_range(value, search_space[name]) for name, value in drawn.items()}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        drawn = super().sample_independent(study, trial, param_name, param_distribution)
        return in_range(drawn, param_distribution)


class LatestMedianPruner(optuna.pruners.MedianPruner):
    """Stops a trial whose latest value lies below the median of the others after the same task.

    Optuna's own compares a trial's best value so far. On a stream that is the one after the first task, from which the
    average only falls, so nothing would ever be stopped.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        latest = copy(trial)
        latest.intermediate_values = dict(sorted(trial.intermediate_values.items())[-1:])
        return super().prune(study, latest)


def in_range(value: Any, where: BaseDistribution) -> Any:
    """A drawn number, rounded, and not over the ends of its range."""
    return min(max(two_digits(value), where.low), where.high) if isinstance(where, FloatDistribution) else value


def distribution(where: Range | Choices) -> BaseDistribution:
    """A space in Optuna's words."""
    if isinstance(where, Choices):
        return CategoricalDistribution(where.values)
    if isinstance(where.low, int) and isinstance(where.high, int):
        return IntDistribution(where.low, where.high, log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)
