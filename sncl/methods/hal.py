r"""HAL: replay, and anchor points whose outputs the step must not change.

    g = grad CE(now, past),    theta' = theta - lr * g
    theta <- theta - lr * (g + strength * grad_theta mean((f(anchors; theta') - f(anchors; theta))^2))

Reference: Chaudhry et al., *Using Hindsight to Anchor Past Knowledge in Continual Learning*, AAAI 2021.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sncl.errors import SnclError
from sncl.methods.method import Growth, Method, Outcome, TaskEnd
from sncl.methods.terms import joined, label_loss, label_losses, padded
from sncl.networks.last import LAST, tap_last
from sncl.networks.taps import Activations, Tapped, evaluating
from sncl.tensors.fields import Fields, Inputs


class HAL(Method):
    """One anchor for each class of every task that has ended; f(anchors; theta') is a constant.

    An anchor is an input that its class would forget most: ``anchor_steps`` ascents of size lr from a random image on

        CE(x, y; theta_M) - CE(x, y; theta) - ``feature_weight`` * ||phi - features(x; theta)||^2

    where theta_M is theta after one step on ``finetune_rows`` samples of the memory, and phi the mean feature of the
    task, phi <- ``decay`` * phi + (1 - ``decay``) * mean features of the batch, from zero in every task.

    Departures: the memory is a reservoir, as in the published runs of 2020; the paper keeps a ring for each class.
    Anchors are made and held with their own statistics in BatchNorm, all of a task as one batch, and leave its running
    ones alone: without normalisation the ascent is unbounded, with it in the running statistics they would become those
    of the anchors. The look-ahead is a step of plain gradient descent, whatever the optimiser.
    """

    takes_weights = True
    draws = 1
    needs_boundaries = True
    expands = True
    phi: Tensor  # [features]
    present: Tensor  # bool [classes]: in the task at hand
    anchors: Tensor  # [(ended tasks + 1) * classes, ...]: a block for each task, the last one for the task at hand
    used: Tensor  # [(ended tasks + 1) * classes]: 1 for an anchor, 0 for a copy that fills up its block

    def __init__(
        self,
        strength: float,
        decay: float,
        feature_weight: float,
        anchor_steps: int = 100,
        finetune_rows: int = 128,
    ) -> None:
        super().__init__()
        if finetune_rows < 1:
            raise SnclError(f"`finetune_rows` is at least 1, not {finetune_rows}")
        self.strength, self.decay, self.feature_weight = strength, decay, feature_weight
        self.anchor_steps, self.finetune_rows = anchor_steps, finetune_rows
        self.lr = 0.0  # told by bind

    def bind(self, lr: float) -> None:
        self.lr = lr

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        if not isinstance(example, Tensor) or not example.is_floating_point():
            raise SnclError("HAL learns its anchors by gradient, so the network's inputs must be real numbers")
        tapped = tap_last(net, example)
        with evaluating(tapped), torch.no_grad():
            logits, features = tapped(example)
        classes = logits.shape[1]
        self.register_buffer("phi", torch.zeros_like(features[LAST][0]))
        self.register_buffer("present", torch.zeros(classes, dtype=torch.bool, device=logits.device))
        self.register_buffer("anchors", example.new_zeros(classes, *example.shape[1:]))
        self.register_buffer("used", logits.new_zeros(classes))
        return tapped

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x, labels = joined(now, past)
        return Outcome({"labels": label_loss(net(x).logits, labels)})

    def backward(self, net: Tapped, losses: Fields) -> None:
        super().backward(net, losses)
        made = len(self.anchors) - len(self.present)
        if made:
            anchors, used = self.anchors[:made], self.used[:made]
            with torch.no_grad():
                ahead = {
                    name: theta - self.lr * theta.grad
                    for name, theta in net.named_parameters()
                    if theta.grad is not None
                }
                kept = aside(net, anchors, ahead).logits
            moved = (aside(net, anchors).logits - kept).square().mean(1)  # [anchors]
            (self.strength * (moved * used).sum() / used.sum().clamp(min=1)).backward()

    def after_update(self, net: Tapped, now: Fields) -> None:
        self.phi.lerp_(aside(net, now["x"]).features[LAST].mean(0), 1 - self.decay)
        self.present.index_fill_(0, now["y"], True)

    def at_boundary(self, net: Tapped, end: TaskEnd) -> None:
        y = self.present.nonzero()[:, 0]
        if len(y):
            classes = torch.arange(len(self.present), device=y.device)
            made = self._make_anchors(net, y, end)
            self.anchors[-len(classes) :] = made[classes % len(y)]  # copies fill it up
            self.used[-len(classes) :] = (classes < len(y)).to(self.used.dtype)
        self.phi.zero_()
        self.present.zero_()

    def expand(self, net: Tapped) -> None:
        classes = len(self.present)
        self.anchors = torch.cat([self.anchors, torch.zeros_like(self.anchors[:classes])])
        self.used = torch.cat([self.used, torch.zeros_like(self.used[:classes])])

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        classes = len(self.present)
        copies = torch.arange(growth.outputs, device=self.anchors.device) % classes
        self.anchors = self.anchors.unflatten(0, (-1, classes))[:, copies].flatten(0, 1)
        used = self.used.unflatten(0, (-1, classes))
        self.used = padded(used.T, growth.outputs).T.flatten()
        self.present = padded(self.present, growth.outputs)
        return super().grow(net, growth)

    def _make_anchors(self, net: Tapped, y: Tensor, end: TaskEnd) -> Tensor:
        """One anchor for each of the classes ``y``."""
        memory, drawing = end.memory, end.generator
        chosen = torch.randperm(len(memory["y"]), generator=drawing)[: self.finetune_rows].to(y.device)
        rows = {name: value[chosen] for name, value in memory.items()}
        loss = label_loss(aside(net, end.transform(rows["x"])).logits, rows)
        weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
        slopes = torch.autograd.grad(loss, list(weights.values()), allow_unused=True, materialize_grads=True)
        theta = {name: weight.detach() for name, weight in weights.items()}
        tuned = {name: theta[name] - self.lr * slope for name, slope in zip(weights, slopes, strict=True)}
        x = torch.rand((len(y), *self.anchors.shape[1:]), generator=drawing).to(self.anchors)
        for _ in range(self.anchor_steps):
            x.requires_grad_()
            here, there = aside(net, x, theta), aside(net, x, tuned)
            forgotten = (label_losses(there.logits, y) - label_losses(here.logits, y)).sum()
            far = (self.phi - here.features[LAST]).square().sum()
            (uphill,) = torch.autograd.grad(forgotten - self.feature_weight * far, x)
            x = x.detach() + self.lr * uphill
        return x


def aside(net: Tapped, x: Inputs, weights: Fields | None = None) -> Activations:
    """A training pass, perhaps with other weights, that leaves no trace in BatchNorm's running statistics."""
    statistics = {name: buffer.clone() for name, buffer in net.named_buffers()}
    passed: Activations = functional_call(net, statistics | (weights or {}), (x,))
    return passed
