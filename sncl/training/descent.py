"""Stochastic gradient descent, the optimiser of every published benchmark here: plain, or with momentum and decay.

The same update as ``torch.optim.SGD`` in a few fused calls per group. What changes from step to step are tensors, in
place, so a step can be recorded or captured and made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sncl.errors import SnclError

VELOCITY = "momentum_buffer"  # as torch.optim.SGD calls it


class Optimizer(Protocol):
    """What a learner asks of an optimiser: every ``torch.optim.Optimizer`` has it."""

    def step(self) -> Any: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


def carry_moments(
    old: Optimizer, groups: list[dict[str, Any]], new: Optimizer, new_groups: list[dict[str, Any]]
) -> None:
    """Give an optimiser of more or other parameters what another knows of those both have, and its options.

    ``groups`` and ``new_groups`` are what the two were made from. A state numbers its parameters in that order.
    """
    known, fresh = old.state_dict(), new.state_dict()
    places = {parameter: place for place, parameter in enumerate(_parameters(new_groups))}
    moments = ((each, known["state"].get(number)) for number, each in enumerate(_parameters(groups)))
    state = {places[each]: moment for each, moment in moments if moment is not None and each in places}
    options = [
        theirs | {"params": ours["params"]}
        for theirs, ours in zip(known["param_groups"], fresh["param_groups"], strict=True)
    ]
    new.load_state_dict({"state": state, "param_groups": options})


def _parameters(groups: list[dict[str, Any]]) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def check_descent(momentum: float, weight_decay: float) -> None:
    """Refuse what would not descend."""
    if not 0 <= momentum < 1:
        raise SnclError(f"`momentum` is 0 (off) or the part of the last step that is kept, below 1, not {momentum}")
    if not 0 <= weight_decay < math.inf:
        raise SnclError(f"`weight_decay` is 0 (off) or a positive number, not {weight_decay}")


@dataclass(frozen=True)
class Descending:
    """Makes a :class:`Descent` of groups of parameters; ``scaled``: its step size may be scaled on the way."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    scaled: bool = False

    def __call__(self, groups: list[dict[str, Any]]) -> Descent:
        return Descent(groups, self.momentum, self.weight_decay, self.scaled)


class Descent:
    """theta <- theta - scale * lr * v, for groups ``{"params": [...], "lr": ...}``, with

        v <- momentum * v + gradient + weight_decay * theta

    from zero on. Without momentum it has no state. ``scale`` is 1 unless :meth:`scale_steps` says otherwise.
    """

    def __init__(
        self, groups: list[dict[str, Any]], momentum: float = 0.0, weight_decay: float = 0.0, scaled: bool = False
    ) -> None:
        self.groups: list[tuple[list[Tensor], float]] = [(list(group["params"]), group["lr"]) for group in groups]
        self.momentum, self.weight_decay = momentum, weight_decay
        every = [each for parameters, _ in self.groups for each in parameters]
        self.velocities = {each: torch.zeros_like(each, requires_grad=False) for each in every} if momentum else {}
        self.scale = torch.ones((), device=every[0].device) if scaled and every else None

    @torch.no_grad()
    def step(self) -> None:
        for parameters, lr in self.groups:
            moved = [each for each in parameters if each.grad is not None]
            if moved:
                torch._foreach_add_(moved, self._directions(moved), alpha=-lr)

    def _directions(self, moved: list[Tensor]) -> list[Tensor]:
        found = [each.grad for each in moved if each.grad is not None]
        if self.weight_decay:
            found = list(torch._foreach_add(found, moved, alpha=self.weight_decay))
        if self.momentum:
            velocities = [self.velocities[each] for each in moved]
            torch._foreach_mul_(velocities, self.momentum)
            torch._foreach_add_(velocities, found)
            found = velocities
        return found if self.scale is None else list(torch._foreach_mul(found, self.scale))

    def scale_steps(self, factor: float) -> None:
        """Multiply the step size by this from now on."""
        if self.scale is not None:
            self.scale.fill_(factor)
        elif factor != 1:
            raise SnclError("the step size of this learner is fixed: it was made without a scale")

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"state": {n: {VELOCITY: v} for n, v in enumerate(self.velocities.values())}, "param_groups": []}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the velocities that are named; the others begin at zero."""
        for number, velocity in enumerate(self.velocities.values()):
            known = state_dict["state"].get(number)
            velocity.copy_(torch.zeros_like(velocity) if known is None else known[VELOCITY])


def scale_steps(optimizer: Optimizer, factor: float) -> None:
    """Multiply the step size by this from now on; of another optimiser than ours it cannot be."""
    if not isinstance(optimizer, Descent):
        raise SnclError(f"the step size of {type(optimizer).__name__} is its own affair")
    optimizer.scale_steps(factor)
