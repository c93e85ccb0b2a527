r"""GEM: a step may raise the loss of no past task, as far as their remembered samples can tell.

    g~ = g + G'v,   v = argmin 1/2 v'(G G' + ridge I) v + (G g)'v   over v >= margin

The rows of G are the gradients of each past task's mean loss on its own remembered rows, g is that of the batch. It is
projected only when some row of G has a negative inner product with it. ``margin`` > 0 adds at least so much of every
past gradient, which favours what the past would learn too.

Reference: Lopez-Paz and Ranzato, *Gradient Episodic Memory for Continual Learning*, NeurIPS 2017.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.admission import PerTask
from sncl.methods.gradients import gradient_of, set_gradient_vector
from sncl.methods.method import Method, Outcome, TaskEnd
from sncl.methods.terms import WEIGHT, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs, picked, pieces, under, within

RIDGE = 1e-3
COLUMNS_AT_ONCE = 2**20


def multipliers(gram: NDArray[np.float64], products: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """v = argmin 1/2 v'(gram + ridge I)v + products'v over v >= margin. [tasks]

    With L L' = gram + ridge I and v = u + margin it is the non-negative least-squares problem
    min ||L'u + inverse(L) (products + margin L L' 1)|| over u >= 0.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls

    tasks = len(products)
    quadratic = gram + RIDGE * np.eye(tasks)
    lower = np.linalg.cholesky(quadratic)
    target = -solve_triangular(lower, products + margin * quadratic.sum(axis=1), lower=True)
    solution: NDArray[np.float64] = nnls(lower.T, target, maxiter=100 * tasks)[0] + margin
    return solution


def project_to_cone(gradient: Tensor, past: Tensor, margin: float) -> Tensor:
    """g~ for a gradient [parameters] and those of the past tasks [tasks, parameters].

    The inner products go to the host, where the small problem is solved in double precision: the one place in a step
    where the device has to be waited for.
    """
    vectors = torch.cat([past, gradient[None]])
    parts = [part.double() for part in vectors.split(COLUMNS_AT_ONCE, dim=1)]
    inner = torch.stack([part @ part.T for part in parts]).sum(0).cpu().numpy()  # [tasks + 1, tasks + 1]
    gram, products = inner[:-1, :-1], inner[:-1, -1]
    if not np.isfinite(inner).all() or (products >= 0).all():  # a run that diverged is left to be reported as such
        return gradient
    weights = torch.from_numpy(multipliers(gram, products, margin)).to(past)
    return gradient + weights @ past


class GEM(Method):
    """All remembered samples of past tasks take part in every step; each task has one of ``parts`` equal parts.

    The part of a task is a random sample of it. Each past task has a forward pass of its own, which serves networks
    with BatchNorm and, with many tasks or samples, is faster than one joined pass with a batched way back: there, every
    task's gradient goes through the samples of all. How many samples each task has is read by the host.
    """

    takes_weights = True
    capturable = False
    draws = 1
    needs_boundaries = True

    def __init__(self, margin: float, parts: int) -> None:
        super().__init__()
        if not margin >= 0:
            raise SnclError(f"`margin` is 0 or a positive number, not {margin}")
        self.margin = margin
        self.admission = PerTask(parts)
        self.register_buffer("ended", torch.zeros((), dtype=torch.int64))
        self.ended: Tensor

    def replayed_rows(self, draw: int, usual: int) -> int:
        return sys.maxsize

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        losses = {"labels": label_loss(net(inputs(now)).logits, now)}
        for rows in past:
            tasks, sizes = rows["task"].unique(return_counts=True)
            order, lengths = rows["task"].argsort(stable=True), sizes.tolist()
            x = pieces(picked(inputs(rows), order), lengths)
            labels = {name: rows[name][order].split(lengths) for name in ("y", WEIGHT) if name in rows}
            for number, task in enumerate(tasks.tolist()):
                own = {name: parts[number] for name, parts in labels.items()}
                losses |= under("past", {str(task): label_loss(net(x[number]).logits, own)})
        return Outcome(losses, remember={"task": self.ended.expand(now["y"].shape)})

    def backward(self, net: Tapped, losses: Fields) -> None:
        gradient = gradient_of(net, losses["labels"])
        past = [gradient_of(net, loss) for loss in within("past", losses).values()]
        set_gradient_vector(net, project_to_cone(gradient, torch.stack(past), self.margin) if past else gradient)

    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields | None:
        self.ended += 1
        return None
