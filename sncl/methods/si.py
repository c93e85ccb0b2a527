r"""Synaptic Intelligence: weights that did much of the work on past tasks are held near their old values.

    L = CE(now) + strength * sum_i Omega_i (theta_i - theta*_i)^2
    omega <- omega + lr * g^2                                                  with every step
    Omega <- Omega + omega / ((theta - theta*)^2 + damping),
    theta* <- theta,  omega <- 0                                               when a task ends

g is the step's gradient, so lr * g^2 is the part of the fall of the loss that each weight's step accounts for. Being a
sum of squares it is never negative.

Reference: Zenke et al., *Continual Learning Through Synaptic Intelligence*, ICML 2017.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sncl.methods.gradients import carried, gradient_vector, trained, weight_vector
from sncl.methods.method import Growth, Method, Outcome, TaskEnd
from sncl.methods.terms import label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs

LARGEST = 1.0  # an entry of the gradient that trains the network


class SI(Method):
    """``strength`` weighs the penalty; ``damping`` keeps a weight that hardly moved from mattering without bound.

    As in the code behind the published numbers: every entry of the gradient is clipped at 1, and omega is made of that
    gradient, penalty included, where the paper has the gradient of the labels' loss alone. lr * g^2 takes the step to
    be plain gradient descent; with another optimiser it is an approximation.
    """

    takes_weights = True
    needs_boundaries = True

    def __init__(self, strength: float, damping: float = 1.0) -> None:
        super().__init__()
        self.strength = strength
        self.damping = damping
        self.lr = 0.0  # told by bind
        self.importance: Tensor  # Omega [parameters]
        self.path: Tensor  # omega [parameters]
        self.start: Tensor  # theta* [parameters]

    def bind(self, lr: float) -> None:
        self.lr = lr

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        tapped = Tapped(net)
        weights = weight_vector(tapped).detach()
        self.register_buffer("importance", torch.zeros_like(weights))
        self.register_buffer("path", torch.zeros_like(weights))
        self.register_buffer("start", weights.clone())
        return tapped

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        away = weight_vector(net) - self.start
        return Outcome(
            {
                "labels": label_loss(net(inputs(now)).logits, now),
                "penalty": self.strength * (self.importance * away.square()).sum(),
            }
        )

    def backward(self, net: Tapped, losses: Fields) -> None:
        super().backward(net, losses)
        nn.utils.clip_grad_value_(net.parameters(), LARGEST)

    def after_update(self, net: Tapped, now: Fields) -> None:
        self.path.add_(gradient_vector(net).square(), alpha=self.lr)

    @torch.no_grad()
    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields | None:
        weights = weight_vector(net)
        self.importance += self.path / ((weights - self.start).square() + self.damping)
        self.start.copy_(weights)
        self.path.zero_()
        return None

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        before = trained(net)
        changed = super().grow(net, growth)
        self.importance, self.path = (carried(each, before, net, 0.0) for each in (self.importance, self.path))
        self.start = carried(self.start, before, net)
        return changed
