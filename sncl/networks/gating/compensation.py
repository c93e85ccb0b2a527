r"""What some neurons of a layer foretell of the others, and which of them are dispensable for it.

Gates are independent, and neurons are not: the paper names that as a limit of its posterior. With the second moments
C = E[h h^T] of a layer, what the open neurons o foretell of the closed ones c is

    h_c = C_{co} (C_{oo} + r I)^{-1} h_o,

a ridge regression, which the layers behind can read straight from the open ones.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def foretold(moments: Tensor, given: Tensor, ridge: float) -> Tensor:
    """How the rest is best told linearly from what is ``given``, by second moments: [all, all], zero where it is not.

    Ridge regression; ``ridge`` is in units of the mean power.
    """
    products = moments.double() * given  # [all, given], others are zeros
    system = products * given.unsqueeze(1) + _penalty(moments, ridge)
    solution = torch.cholesky_solve(products.T * ~given, torch.linalg.cholesky(system))
    return solution.T.to(moments.dtype)


def unforetold(moments: Tensor, power: Tensor, log_lambda: Tensor, cut: Tensor, ridge: float) -> Tensor:
    r"""Which neurons stay open where others answer for those that close: bool [all].

    What counts of a neuron is its relevance for each unit of the ``power`` it had when \lambda was learned, times the
    power of it that the open ones do not foretell over the whole stream; so \lambda is divided by the ratio of the two.
    They close one by one, the most doubtful first, for two that say the same are dispensable until one of them is gone.
    """
    penalty = _penalty(moments, ridge)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments.double() + penalty))
    given = torch.ones_like(log_lambda, dtype=torch.bool)
    for _ in range(len(given)):
        rest = 1 / inverse.diagonal() - penalty.diagonal()
        doubt = log_lambda - torch.where(power > 0, rest / power, 1.0).clamp(1e-6, 1e6).log()
        doubt = torch.where(given, doubt, -torch.inf)
        most = doubt.argmax()
        if doubt[most] < cut:
            break
        given[most] = False
        inverse -= inverse[:, most, None] * inverse[None, most] / inverse[most, most]  # without that neuron
    return given


def _penalty(moments: Tensor, ridge: float) -> Tensor:
    mean = moments.diagonal().double().mean().clamp(min=torch.finfo(moments.dtype).tiny)
    return torch.diag((ridge * mean).expand(len(moments)))


def mixed(h: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The channels of ``h`` along an axis, multiplied by a matrix."""
    return F.linear(h.movedim(axis, -1), matrix.to(h.dtype)).movedim(-1, axis)
