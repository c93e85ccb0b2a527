"""What decides the learner of an estimator, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sncl.errors import BadInput, SnclError
from sncl.methods.table import METHODS, Value, entry, make
from sncl.networks.mlp import dense
from sncl.networks.output import find_output
from sncl.streams.standardisation import RunningScale
from sncl.tensors.random import seeded
from sncl.training.engine import choose_device
from sncl.training.learner import Learner

Network = nn.Module | Callable[[Any, int], nn.Module]


@dataclass(frozen=True)
class LearnerSpec:
    """The parameters of an estimator, and of the first samples what else decides its learner.

    It is noted when the learner is made, so that the learner can be made again in the same way, whatever became of the
    parameters since.
    """

    method: str
    settings: dict[str, Value]
    memory: int
    replay: int
    lr: float
    hidden: tuple[int, ...]
    network: Network | None
    standardize: bool
    ema: float
    seed: int
    device: str
    shape: tuple[int, ...]  # of one sample
    outputs: int  # of the network at first
    dtype: str  # of samples in the memory
    unscaled: tuple[int, ...] = ()  # features that are 0 or 1 by their nature
    momentum: float = 0.0
    weight_decay: float = 0.0

    @classmethod
    def from_plain(cls, plain: dict[str, Any], network: Network | None) -> Self:
        """The inverse of :meth:`plain`."""
        sizes = {name: tuple(plain.get(name, ())) for name in ("hidden", "shape", "unscaled")}
        return cls(**plain | sizes, network=network)

    def plain(self) -> dict[str, Any]:
        """All but the network, which is code."""
        return {name: value for name, value in vars(self).items() if name != "network"}

    def make(self) -> tuple[Learner, RunningScale | None]:
        """A learner that has learned nothing yet, and the scale its inputs go through."""
        net = self._make_network()
        first = next(net.parameters(), torch.zeros(0))
        example = torch.zeros((2, *self.shape), dtype=first.dtype, device=first.device)
        scale = None
        if self.standardize:
            scale = RunningScale(self.shape[0], first.dtype, choose_device(self.device), self.unscaled)
        learner = Learner(
            net,
            make(self.method, self.settings),
            memory=self.memory,
            replay=self.replay,
            lr=self.lr,
            transform=scale,
            seed=self.seed,
            device=self.device,
            ema=self.ema,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            grow=_can_grow(net, example),
        )
        return learner, scale

    def _make_network(self) -> nn.Module:
        given = self.network
        with seeded(self.seed, "network"):
            if given is None:
                net: Any = dense(self.shape[0], self.outputs, self.hidden)
            elif isinstance(given, nn.Module):
                net = deepcopy(given)
            else:
                net = given(self.shape[0] if len(self.shape) == 1 else self.shape, self.outputs)
        if not isinstance(net, nn.Module):
            kind = type(net).__name__
            raise BadInput(f"`network` is an nn.Module or makes one from (n_features, n_classes), not {kind}")
        return net

    def samples(self, X: NDArray[Any]) -> Tensor:
        """Inputs as the learner takes them, in memory of their own."""
        return torch.from_numpy(np.array(X, dtype=self.dtype, order="C"))


def check_method(name: str) -> None:
    """Raise unless a method can learn and predict as an estimator does."""
    if reason := _unusable(name):
        known = ", ".join(each for each in METHODS if not _unusable(each))
        raise BadInput(f"{name} {reason}, so it is no method for an estimator; those are {known}")


def _unusable(method: str) -> str:
    """Why a method is not for an estimator; nothing if it is."""
    if entry(method).joint:
        return "is a way to show a stream"
    return "predicts only when told the task" if make(method).needs_task_at_test else ""


def _can_grow(net: nn.Module, example: Tensor) -> bool:
    try:
        find_output(net, example)
    except (SnclError, RuntimeError, ValueError, TypeError, IndexError):  # what else is wrong, the learner will say
        return False
    return True
