"""How much noise on its weights a network bears: a flat minimum bears more.

After the last task Gaussian noise of growing size goes on every weight, and the loss on the training samples (the
measure of Buzzega et al., *Dark Experience for General Continual Learning*, 2020), the loss on the test samples and
the test accuracy are taken, in evaluation mode. The same noise in absolute size means little between networks whose
weights are of different size, as BatchNorm and gates let them be, so noise is also scaled to the norm of each filter
(Li et al., *Visualizing the Loss Landscape of Neural Nets*, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sncl.analysis.samples import TrainingSamples, samples_of_tests
from sncl.analysis.scoring import score_tests
from sncl.errors import SnclError
from sncl.methods.terms import label_losses
from sncl.networks.gating.attach import gates
from sncl.runs.loading import Trained
from sncl.runs.summary import mean_std
from sncl.streams.cache import Progress
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator

NoiseKind = Literal["absolute", "relative", "relative_gates"]
SIZES: dict[str, tuple[float, ...]] = {
    "absolute": (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1),
    "relative": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0),
}


def weights(net: nn.Module, kind: NoiseKind) -> dict[str, nn.Parameter]:
    """What the noise goes on.

    "absolute" and "relative_gates": every parameter but the gates' spreads, which scale nothing in evaluation.
    "relative": the gates' means stay as they are too. A gate behind a ReLU is a factor of its neuron's weights, so
    noise relative to these is noise relative to the weights with the gate multiplied in; noise on the gate comes on
    top. Which of the two is fair to a network without gates can be argued about, so both are reported.
    """
    of_gates = [each for _, gate in gates(net) for each in gate.named_parameters()]
    resting = {id(value) for name, value in of_gates if kind == "relative" or name != "mu"}
    return {name: value for name, value in net.named_parameters() if id(value) not in resting}


def direction(name: str, weight: Tensor, kind: NoiseKind, seed: int, *purpose: object) -> Tensor:
    """Noise of size 1 for one tensor, drawn on the host by its name, so that networks that share it are paired.

    Absolute: standard normal. Relative: of the norm of the weights themselves, for each filter of a matrix or a
    convolution, for the whole of a vector.
    """
    normal = torch.randn(weight.shape, generator=generator(seed, "perturbation", *purpose, name)).to(weight)
    if kind == "absolute":
        return normal
    axes = tuple(range(1, weight.dim())) or None
    norms = [torch.linalg.vector_norm(value, dim=axes, keepdim=True) for value in (weight.detach(), normal)]
    return normal.mul_(norms[0] / norms[1])


@contextmanager
def moved(parameters: Mapping[str, nn.Parameter], directions: Fields, size: float) -> Iterator[None]:
    """The weights moved by ``size`` times the directions for a while; afterwards they are what they were, exactly."""
    before = {name: value.detach().clone() for name, value in parameters.items()}
    with torch.no_grad():
        try:
            for name, value in parameters.items():
                value.add_(directions[name], alpha=size)
            yield
        finally:
            for name, value in parameters.items():
                value.copy_(before[name])


def measure(run: Trained, training: Iterable[tuple[Tensor, Tensor]], tests: list[tuple[Tensor, Tensor]]) -> Fields:
    """Losses over the training and the test samples and the accuracies in percent, as one number each."""
    losses = [label_losses(run.learner.logits(x), y).double() for x, y in training]
    loss, accuracy = score_tests(run, tests)
    return {
        "train_loss": torch.cat(losses).mean(),
        "test_loss": loss,
        **{f"accuracy/{readout}": torch.tensor(value, dtype=torch.float64) for readout, value in accuracy.items()},
    }


def perturbation(
    run: Trained,
    *,
    sizes: Mapping[str, tuple[float, ...]] = SIZES,
    draws: int = 5,
    rows: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Loss and accuracy under noise of each size: their mean over ``draws`` of noise, and every draw under "draws".

    ``sizes`` are those of "absolute" and of "relative" noise.
    ``rows`` is how many training samples and about how many test samples are looked at (0: all).
    """
    run.refuse_own_predictions()
    wanted: dict[NoiseKind, tuple[float, ...]] = {"absolute": sizes["absolute"], "relative": sizes["relative"]}
    if next(gates(run.learner.net), None) is not None:
        wanted["relative_gates"] = sizes["relative"]
    training = TrainingSamples(run.stream, rows, seed)
    tests = samples_of_tests(run.stream, rows, seed)
    total, done = sum(draws if size else 1 for each in wanted.values() for size in each), 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    points = {}
    for kind, chosen in wanted.items():
        points[kind] = noisy_measures(run, training, tests, kind, chosen, draws, seed, tick)
    return {
        "measures": {
            kind: [{"size": each["size"], **over_draws(each)} for each in found] for kind, found in points.items()
        },
        "draws": points,
        "training_rows": len(training),
        "test_rows": sum(len(y) for _, y in tests),
        "number_of_draws": draws,
    }


def noisy_measures(
    run: Trained,
    training: TrainingSamples,
    tests: list[tuple[Tensor, Tensor]],
    kind: NoiseKind,
    sizes: Sequence[float],
    draws: int,
    seed: int,
    tick: Callable[[], None],
) -> list[dict[str, Any]]:
    """What is measured under each draw of one kind of noise, by size."""
    parameters = weights(run.learner.net.body, kind)
    taken: list[list[dict[str, float]]] = [[] for _ in sizes]
    for draw in range(draws):
        directions = {
            name: direction(name, value, kind, seed, run.experiment.seed, draw) for name, value in parameters.items()
        }
        for values, size in zip(taken, sizes, strict=True):
            if size == 0 and draw:  # as without noise, whatever the draw
                continue
            with moved(parameters, directions, size):
                values.append({name: float(value) for name, value in measure(run, training, tests).items()})
            tick()
    return [{"size": size, "values": values} for size, values in zip(sizes, taken, strict=True)]


def over_draws(point: dict[str, Any]) -> dict[str, float]:
    """The mean over draws of each measure at one size."""
    values: list[dict[str, float]] = point["values"]
    for each in values:
        if not all(math.isfinite(value) for value in each.values()):
            raise SnclError(f"under noise of size {point['size']} the loss is no number any more; use smaller sizes")
    return {name: mean_std([each[name] for each in values])[0] for name in values[0]}
