"""Plain stochastic gradient descent, the optimiser of every published benchmark here.

The same update as ``torch.optim.SGD`` with no momentum and no decay, in one fused call per group. It has no state.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Optimizer(Protocol):
    """What a learner asks of an optimiser: every ``torch.optim.Optimizer`` has it."""

    def step(self) -> Any: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def carry_moments(
    old: Optimizer, groups: list[dict[str, Any]], new: Optimizer, new_groups: list[dict[str, Any]]
) -> None:
    """Give an optimiser of more parameters what another knows of those it had, and its options.

    ``groups`` and ``new_groups`` are what the two were made from. A state numbers its parameters in that order.
    """
    known, fresh = old.state_dict(), new.state_dict()
    places = {parameter: place for place, parameter in enumerate(_parameters(new_groups))}
    state = {places[each]: known["state"][n] for n, each in enumerate(_parameters(groups)) if n in known["state"]}
    options = [
        theirs | {"params": ours["params"]}
        for theirs, ours in zip(known["param_groups"], fresh["param_groups"], strict=True)
    ]
    new.load_state_dict({"state": state, "param_groups": options})


def _parameters(groups: list[dict[str, Any]]) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


class Descent:
    """theta <- theta - lr * gradient, for groups ``{"params": [...], "lr": ...}``."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.groups: list[tuple[list[Tensor], float]] = [(list(group["params"]), group["lr"]) for group in groups]

    @torch.no_grad()
    def step(self) -> None:
        for parameters, lr in self.groups:
            pairs = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
            if pairs:
                torch._foreach_add_([parameter for parameter, _ in pairs], [grad for _, grad in pairs], alpha=-lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"state": {}, "param_groups": []}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""
