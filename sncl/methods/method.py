"""What a method is: one function of the network, the batch and what is replayed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sncl.memory.admission import Admission, Reservoir
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields


class Outcome(NamedTuple):
    """What observing one batch leads to.

    ``losses`` are added up and differentiated. ``remember`` goes into the memory beside the input ``x`` and the label
    ``y`` of each row, if the row is admitted. ``refresh`` overwrites fields of the remembered rows named by ``slot``.
    """

    losses: Fields
    remember: Fields = {}  # noqa: RUF012 (a NamedTuple default that nothing changes)
    refresh: Fields = {}  # noqa: RUF012


class Method(nn.Module, ABC):
    """A continual-learning method. It sees no optimiser, memory, stream, log or device.

    ``now`` holds the batch, ``past`` one replayed batch for each of ``draws`` (empty while nothing is remembered);
    both are named tensors: ``x`` as the network takes it, ``y``, and in ``past`` whatever the method remembered and
    the ``slot`` of each row.
    """

    draws: int = 0
    needs_boundaries: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.admission: Admission = Reservoir()

    @abstractmethod
    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        """One training step's losses, and what is to be remembered of it."""

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        """Get the network ready before the first step, for example by attaching gates."""
        return Tapped(net)

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        """The parameters to optimise, each group with its own step size."""
        return [{"params": list(net.parameters()), "lr": lr}]

    def backward(self, losses: Fields, parameters: Iterable[nn.Parameter]) -> None:
        """Leave the step's gradient in the parameters: that of the sum of the losses."""
        total: Tensor = torch.stack(list(losses.values())).sum()
        total.backward()

    def after_update(self, net: Tapped, now: Fields) -> None:
        """Called behind every optimiser step."""

    def at_boundary(self, net: Tapped) -> None:
        """Called when a task ends, on streams that say so."""

    def predict(self, net: Tapped, x: Tensor) -> Tensor:
        """Logits for evaluation. [rows, classes]"""
        return net.passes(x)[0].logits
