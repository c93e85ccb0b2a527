r"""The empirical Fisher information F = 1/N \sum_n g_n g_n^T, with g_n the gradient of sample n's cross-entropy.

The labels are the true ones. In evaluation mode, so that a sample's gradient is its own. The sum of the eigenvalues is
the trace, the mean squared norm of the g_n, for which no matrix is needed; the largest eigenvalues come from Lanczos
iteration (ARPACK), for which F times a vector needs derivatives of a batch and no single gradient, so memory is
bounded by one batch.

Both depend on the scale of the weights, which BatchNorm and gates leave free. ``relative_trace``, the mean of
\sum_i (g_{ni} w_i)^2, does not: it is the trace in units of the weights themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import grad

from sncl.analysis.perturbation import weights
from sncl.analysis.samples import TrainingSamples
from sncl.errors import SnclError
from sncl.methods.gradients import per_sample_gradients, trained
from sncl.methods.terms import label_losses
from sncl.networks.taps import Tapped, evaluating
from sncl.runs.loading import Trained
from sncl.streams.cache import Progress
from sncl.tensors.random import generator

NUMBERS_AT_ONCE = 2**25  # in gradients of single samples: 128 MB
Batches = Iterable[tuple[Tensor, Tensor]]  # network inputs and labels; can be iterated again and again
EIGENVALUE_TOLERANCE = 1e-4  # relative, of an eigenvalue


class Traces(NamedTuple):
    """Of every sample, the squared norm of its gradient: plain, and with each part times its weight. float64 [samples]

    Gates are factors of the weights of their neurons, so what they add to the second is kept apart.
    """

    plain: Tensor
    relative: Tensor
    of_gates: Tensor


def traces(net: Tapped, batches: Batches, progress: Callable[[int], None] | None = None) -> Traces:
    """The squared gradient norms of single samples, in chunks of bounded size."""
    parameters = {name: value.detach() for name, value in net.body.named_parameters() if value.requires_grad}
    scaling = weights(net.body, "relative").keys()
    chunk = max(1, NUMBERS_AT_ONCE // sum(value.numel() for value in parameters.values()))
    found: list[Tensor] = []
    for x, y in batches:
        for some, labels in zip(x.split(chunk), y.split(chunk), strict=True):
            gradients = per_sample_gradients(net, some, labels)
            sums = y.new_zeros((3, len(labels)), dtype=torch.float64)
            for name, value in gradients.items():
                sums[0] += value.flatten(1).square().sum(1)
                sums[1 if name in scaling else 2] += (value * parameters[name]).flatten(1).square().sum(1)
            found.append(sums)
        if progress is not None:
            progress(len(y))
    return Traces(*torch.cat(found, dim=1))


def times_fisher(net: Tapped, batches: Batches, vector: Tensor) -> Tensor:
    """F times a vector over the trained parameters, without F or any single sample's gradient. [parameters]

    The slope of each loss along the vector is a derivative of the gradient of their weighted sum by the weights.
    """
    parameters = trained(net.body)
    total, rows = torch.zeros_like(vector), 0
    with evaluating(net), torch.enable_grad():
        for x, y in batches:
            losses = label_losses(net(x).logits, y)  # [samples]
            each = torch.ones_like(losses, requires_grad=True)
            weighted = grad(losses @ each, parameters, create_graph=True, materialize_grads=True)
            (slopes,) = grad(torch.cat([part.flatten() for part in weighted]) @ vector, each, retain_graph=True)
            pulled = grad(losses @ slopes, parameters, materialize_grads=True)
            total += torch.cat([part.flatten() for part in pulled])
            rows += len(y)
    return total / rows


def leading_eigenvalues(net: Tapped, batches: Batches, count: int, seed: int = 0) -> list[float]:
    """The ``count`` largest eigenvalues of F, from the largest on; fewer where the network has no more parameters."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    parameters = trained(net.body)
    size = sum(value.numel() for value in parameters)

    def product(vector: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        given = torch.from_numpy(vector.reshape(-1)).to(parameters[0])
        moved: NDArray[numpy.float64] = times_fisher(net, batches, given).double().cpu().numpy()
        return moved

    start = torch.randn(size, generator=generator(seed, "fisher"), dtype=torch.float64).numpy()
    try:
        values = eigsh(
            LinearOperator((size, size), matvec=product, dtype=numpy.float64),
            k=min(count, size - 1),
            which="LA",
            v0=start,
            tol=EIGENVALUE_TOLERANCE,
            return_eigenvectors=False,
        )
    except ArpackError as error:
        raise SnclError(f"the eigenvalues of the Fisher information were not found: {error}") from error
    return sorted((float(value) for value in values), reverse=True)


class _EvalInputs:
    """Training samples as the network takes them in evaluation."""

    def __init__(self, run: Trained, rows: TrainingSamples) -> None:
        self.rows, self.eval_input = rows, run.learner.transform.eval

    def __iter__(self) -> Any:
        return ((self.eval_input(x), y) for x, y in self.rows)


def fisher(
    run: Trained, *, rows: int = 5_000, eigenvalues: int = 10, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """The trace, with its standard error, and the largest eigenvalues over ``rows`` training samples (0: all)."""
    run.refuse_own_predictions()
    training = TrainingSamples(run.stream, rows, seed)
    batches = _EvalInputs(run, training)
    done = 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, len(training))

    each = traces(run.learner.net, batches, tick)
    named = {"trace": each.plain, "relative_trace": each.relative, "relative_trace_of_gates": each.of_gates}
    measures = {
        **{name: float(values.mean()) for name, values in named.items()},
        "eigenvalues": leading_eigenvalues(run.learner.net, batches, eigenvalues, seed) if eigenvalues else [],
    }
    return {
        "measures": measures,
        "standard_error": {
            name: float(values.std(correction=0) / len(values) ** 0.5) for name, values in named.items()
        },
        "training_rows": len(training),
        "parameters": sum(value.numel() for value in trained(run.learner.net.body)),
    }
