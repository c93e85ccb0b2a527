"""Gradient clipping with a bound that follows the gradient's norm.

A bound that is a number must know the scale of losses, weights and inputs. This one is a multiple of the norm's own
running mean: it does nothing while training goes on as before, and keeps steps short where inputs that nobody expected
make the loss steep. A new task may have much larger gradients for good, so the mean takes in norms as they are, up to
ten times the bound: it follows within some tens of steps, and a single outlier does not carry it away.

Reference: Pascanu et al., *On the difficulty of training recurrent neural networks*, ICML 2013; a bound from the
history of norms: Seetharaman et al., *AutoClip*, MLSP 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Fields

DECAY = 0.99  # of the running mean, in each step
WARMUP_STEPS = 10  # without a bound, until there is a mean to speak of
MOST = 10.0  # times the bound: what a norm counts at most


def check_clip(clip: float) -> None:
    """Refuse a factor that would stop training."""
    if not (clip == 0 or clip >= 1):
        raise SnclError(f"`clip` is 0 (off) or how many times its running mean a gradient may have, from 1, not {clip}")


class Clip:
    """Scales gradients down whose norm is above ``factor`` times its running mean."""

    def __init__(self, factor: float, device: torch.device) -> None:
        self.factor = factor
        self.mean, self.steps = torch.zeros((), device=device), torch.zeros((), device=device)

    @torch.no_grad()
    def __call__(self, gradients: list[Tensor]) -> None:
        """Bound the norm of all gradients together, in place."""
        if not gradients:
            return
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        bound = (self.factor * self.mean).masked_fill((self.steps < WARMUP_STEPS) | (self.mean == 0), math.inf)
        torch._foreach_mul_(gradients, (bound / norm).nan_to_num(nan=1.0).clamp(max=1.0))
        weight = (1 - (1 + self.steps) / (10 + self.steps)).clamp(min=1 - DECAY)
        self.mean.lerp_(torch.minimum(norm, MOST * bound), weight)
        self.steps += 1

    def state(self) -> Fields:
        return {"mean": self.mean, "steps": self.steps}

    def load(self, state: Fields) -> None:
        self.mean.copy_(state["mean"])
        self.steps.copy_(state["steps"])
