"""How much accuracy each degree of sparsity costs: one trained network with more and more of its neurons closed.

Of the neurons a run has left open, further ones are closed in evaluation, the least relevant first
(:mod:`sncl.analysis.relevance`, on what the memory holds); nothing is trained, and no closed neuron is opened. What
closed neurons save is counted on the network without them, as :mod:`sncl.networks.pruning.prune` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.analysis.relevance import relevance
from sncl.analysis.samples import samples_of_tests
from sncl.analysis.scoring import score_tests
from sncl.errors import SnclError
from sncl.networks.gating.attach import closing, gates
from sncl.networks.pruning.prune import pruned
from sncl.networks.pruning.scales import count_parameters, without_gates
from sncl.runs.loading import Trained
from sncl.runs.sweep import ACCURACY, OWN
from sncl.streams.cache import Progress
from sncl.tensors.fields import Fields
from sncl.training.evaluate import open_when_predicting
from sncl.training.learner import Learner

CLOSED = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)  # percent of all gated neurons


class SparsityPoint(NamedTuple):
    """What is left with so many neurons closed: the fraction of gated neurons that are open, the parameters when closed
    neurons are removed, and accuracy in percent by read-out."""

    open_fraction: float
    parameters: int
    accuracy: dict[str, float]


def sweep(
    run: Trained, tests: list[tuple[Tensor, Tensor]], closed: Sequence[float] = CLOSED, progress: Progress | None = None
) -> dict[str, SparsityPoint]:
    """The network as the run left it, and with ``closed`` percent of its neurons closed where that is more.

    ``tests`` are test samples by task. The network is as it was afterwards.
    """
    opened, known = open_when_predicting(run.learner), relevance(run.learner, remembered(run))
    total = sum(len(layer) for layer in opened.values())
    own = total - sum(int(layer.sum()) for layer in opened.values())
    wanted = {f"{percent:g}": round(percent / 100 * total) - own for percent in closed}
    further = {OWN: 0} | {key: count for key, count in wanted.items() if count > 0}
    example, found = run.example(), dict[str, SparsityPoint]()
    for number, (key, count) in enumerate(further.items(), start=1):
        shut = least_relevant(opened, known, count)
        with closing(run.learner.net.body, shut):
            left = total - own - sum(int(layer.sum()) for layer in shut.values())
            parameters = parameters_left(run.learner, example)
            found[key] = SparsityPoint(left / total, parameters, score_tests(run, tests).accuracy)
        if progress is not None:
            progress(number, len(further))
    return found


def remembered(run: Trained) -> Fields:
    """What the memory of a run holds in the end."""
    memory = run.learner.memory
    assert memory is not None  # SNCL, the one method with gates, always has one
    return memory.content()


def least_relevant(opened: Fields, known: Fields, count: int) -> Fields:
    """So many open neurons, the least relevant of all layers, or fewer where a layer would keep none: bool by layer."""
    ranks = []
    for name, is_open in opened.items():
        rank = torch.where(is_open, known[name], torch.inf)
        rank[torch.where(is_open, known[name], -torch.inf).argmax()] = torch.inf  # stays
        ranks.append(rank)
    together = torch.cat(ranks)
    chosen = together.argsort(stable=True)[: min(count, int(together.isfinite().sum()))]
    shut = torch.zeros_like(together, dtype=torch.bool).index_fill(0, chosen, True)
    return dict(zip(opened, shut.split([len(rank) for rank in ranks]), strict=True))


def parameters_left(learner: Learner, example: Tensor) -> int:
    """How many parameters the network that predicts has without its closed neurons."""
    with learner.predicting():
        return count_parameters(pruned(learner.net, example).net)


def parameters_of_dense(learner: Learner, example: Tensor) -> int:
    """How many parameters the network has with all neurons and without gates."""
    with learner.predicting():
        return count_parameters(without_gates(learner.net.body, example))


def sparsity(
    run: Trained,
    *,
    closed: Sequence[float] = CLOSED,
    rows: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Open neurons, parameters left and accuracy of the network as it is and with ``closed`` percent of all neurons
    closed, on about ``rows`` test samples (0: all)."""
    if next(gates(run.learner.net), None) is None:
        raise SnclError(f"{run.folder} has no gates, so there is nothing to close; this analysis is for runs of sncl")
    for percent in closed:
        if not 0 < percent < 100:
            raise SnclError(f"`closed` takes percent of all neurons, above 0 and below 100, not {percent:g}")
    run.refuse_own_predictions()
    tests = samples_of_tests(run.stream, rows, seed)
    parameters = parameters_of_dense(run.learner, run.example())
    points = sweep(run, tests, closed, progress)
    return {
        "measures": {
            key: {
                "open": 100 * each.open_fraction,
                "parameters_left": 100 * each.parameters / parameters,
                **{f"{ACCURACY}{readout}": value for readout, value in each.accuracy.items()},
            }
            for key, each in points.items()
        },
        "parameters": parameters,
        "memory_rows": len(remembered(run)["y"]),
        "test_rows": sum(len(y) for _, y in tests),
    }
