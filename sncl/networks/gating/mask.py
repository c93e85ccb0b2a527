r"""What is closed in evaluation, and how open neurons compensate for it. Training knows nothing of either.

A neuron is closed from a threshold on \log \lambda on. Gates are independent, and neurons are not: the paper names that
as a limit of its posterior. With the second moments C = E[h h^T] of a layer, what the open neurons o tell of the closed
ones c is

    h_c = C_{co} (C_{oo} + r I)^{-1} h_o,

a ridge regression, which the layers behind can read straight from the open ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError

LOG_LAMBDA_LIMIT = 10.0
POWER_DECAY = 0.99
MOMENTS_DECAY = 0.99999  # at most: they are of the whole stream, as the memory is


@dataclass(frozen=True)
class Mask:
    r"""A choice of evaluation: one trained network can be scored under any number of masks.

    Neurons with \log \lambda >= ``threshold`` are closed; 0 is the paper's \lambda >= 1, and a lower threshold also
    closes the doubtful ones. With ``compensate`` > 0 the open neurons of a layer stand in for its closed ones; it is
    the ridge of that regression in units of the neurons' mean power (1 is a good one), and the :class:`Moments` it
    needs must have been tracked in training.
    """

    threshold: float = 0.0
    compensate: float = 0.0

    def __post_init__(self) -> None:
        if not -LOG_LAMBDA_LIMIT <= self.threshold <= 0:
            raise SnclError(f"`threshold` is a log lambda from {-LOG_LAMBDA_LIMIT:g} to 0, not {self.threshold}")
        if not self.compensate >= 0:
            raise SnclError(f"`compensate` is 0 (off) or the ridge of a regression, above 0, not {self.compensate}")


class Moments(nn.Module):
    """Running statistics of a layer's responses, learned in training and used for compensation."""

    products: Tensor  # [channels, channels]: mean product of responses over the whole stream
    power: Tensor  # [channels]: recent mean of their squares
    steps: Tensor  # []: batches seen

    def __init__(self, channels: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("products", torch.zeros(channels, channels, device=device))
        self.register_buffer("power", torch.zeros(channels, device=device))
        self.register_buffer("steps", torch.zeros((), device=device))

    @torch.no_grad()
    def update(self, h: Tensor, axis: int) -> None:
        """Take in a batch of responses with channels along ``axis``."""
        rows = h.movedim(axis, -1).flatten(0, -2).to(self.products.dtype)  # [samples and positions, channels]
        with torch.autocast(h.device.type, enabled=False):  # a regression wants the full precision
            products = rows.T @ rows / rows.shape[0]
        self.steps += 1
        share = 1 / self.steps  # of this batch in a mean over all
        self.products.lerp_(products, share.clamp(min=1 - MOMENTS_DECAY))
        self.power.lerp_(products.diagonal(), share.clamp(min=1 - POWER_DECAY))


def below(log_lambda: Tensor, threshold: float) -> Tensor:
    r"""Which neurons are open: bool [channels]. Those at the lower limit of \lambda cannot be told apart: all open."""
    return (log_lambda < threshold) | (log_lambda <= -LOG_LAMBDA_LIMIT)


def select_open(moments: Moments, log_lambda: Tensor, mask: Mask) -> Tensor:
    r"""Which neurons stay open where others compensate for those that close: bool [channels].

    What counts of a neuron is its relevance for each unit of the power it had when \lambda was learned, times the power
    of it that the open ones do not reconstruct over the whole stream; so \lambda is divided by the ratio of the two.
    Neurons close one by one, the most doubtful first: of two that say the same one is needed once the other is gone.
    """
    products, power = moments.products, moments.power
    doubtful = torch.where(log_lambda > -LOG_LAMBDA_LIMIT, log_lambda, -torch.inf)
    penalty = _penalty(products, mask.compensate)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products.double() + penalty))
    is_open = torch.ones_like(log_lambda, dtype=torch.bool)
    for _ in range(len(is_open)):
        rest = 1 / inverse.diagonal() - penalty.diagonal()
        doubt = doubtful - torch.where(power > 0, rest / power, 1.0).clamp(1e-6, 1e6).log()
        doubt = torch.where(is_open, doubt, -torch.inf)
        most = doubt.argmax()
        if doubt[most] < mask.threshold:
            break
        is_open[most] = False
        inverse -= inverse[:, most, None] * inverse[None, most] / inverse[most, most]  # without that neuron
    return is_open


def reconstruction(moments: Moments, is_open: Tensor, ridge: float) -> Tensor:
    """The regression of the closed neurons on the open ones: [channels, channels], zero elsewhere."""
    products = moments.products.double() * is_open  # [channels, open], others are zeros
    system = products * is_open.unsqueeze(1) + _penalty(moments.products, ridge)
    solution = torch.cholesky_solve(products.T * ~is_open, torch.linalg.cholesky(system))
    return solution.T.to(moments.products.dtype)


def mixed(h: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The channels of ``h`` along an axis, multiplied by a matrix."""
    return F.linear(h.movedim(axis, -1), matrix.to(h.dtype)).movedim(-1, axis)


def _penalty(products: Tensor, ridge: float) -> Tensor:
    mean = products.diagonal().double().mean().clamp(min=torch.finfo(products.dtype).tiny)
    return torch.diag((ridge * mean).expand(len(products)))
