r"""Meta-Experience Replay: several steps on batches from the memory, each with the new sample in it, then step back.

    theta_0 -> theta_1 -> ... -> theta_inner,   theta_i = theta_(i-1) - beta lr grad CE(now and replay i)
    theta <- theta_0 + gamma (theta_inner - theta_0)

Moving only a part ``gamma`` of the way (Reptile) favours weights from which the steps agree with each other.

Reference: Riemer et al., *Learning to Learn without Forgetting by Maximizing Transfer and Minimizing Interference*,
ICLR 2019.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.gradients import trained, weight_vector
from sncl.methods.method import Growth, Method, Outcome
from sncl.methods.terms import joined, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields


class MER(Method):
    """``inner`` steps on each batch, each with a replayed batch of its own; meant for batches of one sample.

    As in the code the published numbers come from, one step learns a whole replayed batch in one mean, where the paper
    takes a step for every sample of it. Reptile within a batch is then Reptile over a single step, which is the same as
    a step size ``beta`` times as large, and is done so. With ``gamma`` = 1 nothing is stepped back and nothing is kept
    for it.
    """

    takes_weights = True
    draws = 1

    def __init__(self, beta: float, gamma: float, inner: int) -> None:
        super().__init__()
        for name, value in (("beta", beta), ("gamma", gamma)):
            if not value > 0:
                raise SnclError(f"`{name}` is a positive number, not {value}")
        if inner < 1:
            raise SnclError(f"`inner` is how many steps a batch is learned in: at least 1, not {inner}")
        self.beta, self.gamma = beta, gamma
        self.steps = inner
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))  # steps on the batch at hand
        self.taken: Tensor
        self.start: Tensor

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        if self.gamma != 1:  # theta_0; means nothing between two batches, so it is in no checkpoint
            self.register_buffer("start", weight_vector(net).detach(), persistent=False)
        return super().prepare(net, example, noise)

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        return super().parameter_groups(net, self.beta * lr)

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        changed = super().grow(net, growth)
        if self.gamma != 1:
            self.start = weight_vector(net).detach()
        return changed

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        if self.gamma != 1:
            here = weight_vector(net).detach()
            self.start.copy_(torch.where(self.taken == 0, here, self.start))
        x, labels = joined(now, past)
        return Outcome({"labels": label_loss(net(x).logits, labels)})

    def after_update(self, net: Tapped, now: Fields) -> None:
        if self.gamma == 1:
            return
        self.taken.add_(1).remainder_(self.steps)
        part = torch.where(self.taken == 0, self.gamma, 1.0)
        parameters = trained(net)
        for value, start in zip(parameters, self.start.split([each.numel() for each in parameters]), strict=True):
            value.copy_(start.view_as(value).lerp(value, part.to(value.dtype)))
