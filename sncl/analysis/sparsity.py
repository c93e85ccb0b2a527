r"""How much accuracy each degree of sparsity costs: one trained network under many masks.

Training knows nothing of the threshold on \log \lambda from which on a neuron is closed: it is a choice of evaluation,
so a finished run answers for every threshold. A lower one closes more neurons. What closed neurons save is counted on
the network without them, as :mod:`sncl.networks.pruning.prune` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from sncl.analysis.samples import samples_of_tests
from sncl.analysis.scoring import score_tests
from sncl.errors import SnclError
from sncl.networks.gating.attach import gates, open_neurons, unmasked
from sncl.networks.pruning.prune import pruned
from sncl.networks.pruning.scales import count_parameters, without_gates
from sncl.runs.loading import Trained
from sncl.runs.sweep import ACCURACY
from sncl.streams.cache import Progress
from sncl.training.learner import Learner

EXAMPLE_SIZE = 3  # samples that show how a network is wired
THRESHOLDS = (-9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0)


class SparsityPoint(NamedTuple):
    """What one threshold gives: the fraction of gated neurons that are open, the parameters that are left when closed
    neurons are removed, and accuracy in percent by read-out."""

    threshold: float
    open_fraction: float
    parameters: int
    accuracy: dict[str, float]


def sweep(
    run: Trained,
    thresholds: Sequence[float] = THRESHOLDS,
    rows: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[SparsityPoint]:
    """The network under each threshold, on about ``rows`` test samples (0: all); its own mask is back afterwards."""
    tests = samples_of_tests(run.stream, rows, seed)
    example = run.stream.transform.eval(tests[0][0][:EXAMPLE_SIZE])
    found: list[SparsityPoint] = []
    for number, threshold in enumerate(thresholds, start=1):
        with under_threshold(run.learner, threshold):
            opened = open_part(run.learner)
            same = [each.parameters for each in found if each.open_fraction == opened]  # the same neurons, too
            left = same[0] if same else parameters_left(run.learner, example)
            found.append(SparsityPoint(threshold, opened, left, score_tests(run, tests).accuracy))
        if progress is not None:
            progress(number, len(thresholds))
    return found


@contextmanager
def under_threshold(learner: Learner, threshold: float) -> Iterator[None]:
    """Evaluate with another threshold for a while; what compensates for closed neurons stays as it is."""
    before = learner.mask
    learner.mask = replace(before, threshold=threshold)
    try:
        yield
    finally:
        learner.mask = before


def open_part(learner: Learner) -> float:
    """The fraction of all gated neurons that are open in the network that predicts."""
    with learner.predicting():
        layers: list[Tensor] = list(open_neurons(learner.net).values())
    return sum(int(layer.sum()) for layer in layers) / sum(layer.numel() for layer in layers)


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
    thresholds: Sequence[float] = THRESHOLDS,
    rows: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Open neurons, parameters left and accuracy under every threshold, on about ``rows`` test samples (0: all); and
    accuracy without a mask."""
    if next(gates(run.learner.net), None) is None:
        raise SnclError(f"{run.folder} has no gates, so there is nothing to close; this analysis is for runs of sncl")
    run.refuse_own_predictions()
    tests = samples_of_tests(run.stream, rows, seed)
    with unmasked(run.learner.net):
        dense = score_tests(run, tests).accuracy
    parameters = parameters_of_dense(run.learner, run.stream.transform.eval(tests[0][0][:EXAMPLE_SIZE]))
    points = sweep(run, thresholds, rows, seed, progress)
    return {
        "measures": {
            "unmasked": by_key(dense),
            "thresholds": [
                {
                    "threshold": each.threshold,
                    "open": 100 * each.open_fraction,
                    "parameters_left": 100 * each.parameters / parameters,
                    **by_key(each.accuracy),
                }
                for each in points
            ],
        },
        "parameters": parameters,
        "own_threshold": run.learner.mask.threshold,
        "test_rows": sum(len(y) for _, y in tests),
    }


def by_key(accuracy: dict[str, float]) -> dict[str, float]:
    return {f"{ACCURACY}{readout}": value for readout, value in accuracy.items()}
