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
