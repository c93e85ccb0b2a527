"""What a method is: one function of the network, the batch and what is replayed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sncl.memory.admission import Admission, Reservoir
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, Inputs


class Outcome(NamedTuple):
    """What observing one batch leads to.

    ``losses`` are added up and differentiated. ``remember`` goes into the memory beside the input ``x`` and the label
    ``y`` of each sample, if the sample is admitted. ``refresh`` overwrites fields of the remembered samples named by
    ``slot``.
    """

    losses: Fields
    remember: Fields = {}  # noqa: RUF012 (a NamedTuple default that nothing changes)
    refresh: Fields = {}  # noqa: RUF012


class TaskEnd(NamedTuple):
    """What a method may look at when a task ends.

    ``rows`` are all samples of the task as they came (``x``, ``y``), empty unless the method :attr:`Method.revisits`
    them; ``memory`` is what is stored, ``capacity`` how many samples it may hold; ``transform`` turns such inputs into
    network inputs as in training, ``test_transform`` as in evaluation; ``generator`` draws on the host.
    """

    rows: Fields
    memory: Fields
    capacity: int
    transform: Callable[[Inputs], Inputs]
    test_transform: Callable[[Inputs], Inputs]
    generator: torch.Generator


class Growth(NamedTuple):
    """Outputs for new classes, which come between two batches.

    ``outputs`` is how many there will be; ``widen`` adds them to the network or a copy of it, behind the others;
    ``stored`` are the memory's fields, as long as there is room for samples, and empty when a run is resumed.
    """

    outputs: int
    widen: Callable[[nn.Module], object]
    stored: Fields


class Method(nn.Module, ABC):
    """A continual-learning method. It sees no optimiser, memory, stream, log or device.

    ``now`` holds the batch, ``past`` one replayed batch for each of ``draws`` (empty while nothing is remembered);
    both are named tensors: ``x`` as the network takes it (``x/name`` where it takes several, read by
    :func:`sncl.tensors.fields.inputs`), ``y``, the ``weight`` of each label where samples have one, and in ``past``
    whatever the method remembered and the ``slot`` of each sample.
    """

    draws: int = 0  # independent replayed batches in each step
    steps: int = 1  # optimiser steps on each batch, each with its own draws
    needs_boundaries: ClassVar[bool] = False  # must be told where tasks end
    needs_task_at_test: ClassVar[bool] = False  # predicts only when told the task
    revisits: ClassVar[bool] = False  # looks at the samples of a task once more when it ends
    capturable: ClassVar[bool] = True  # every step is the same tensor operations, and none is asked for its value
    one_backward: ClassVar[bool] = True  # what observe returns is differentiated once, all losses together
    supports_ema: ClassVar[bool] = True  # what it stores for predictions fits the average of the weights too
    bf16_safe: ClassVar[bool] = True  # learns with passes in bfloat16 too
    expands: ClassVar[bool] = False  # adds parameters or buffers when a task ends, in :meth:`expand`
    takes_weights: ClassVar[bool] = False  # the labels' losses are means by the field ``weight``, where it is there
    shares_steps: ClassVar[bool] = False  # with a :meth:`backward` of its own: takes no gradient but as ours do
    grows: ClassVar[bool] = True  # outputs for new classes may be added at any time, in :meth:`grow`

    def __init__(self) -> None:
        super().__init__()
        self.admission: Admission = Reservoir()

    @abstractmethod
    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        """One training step's losses, and what is to be remembered of it."""

    def bind(self, lr: float) -> None:
        """Be told the learner's step size, once and before :meth:`prepare`; for methods whose equations contain it."""

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        """Get the network ready before the first step, for example by attaching gates."""
        return Tapped(net)

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        """The parameters to optimise, each group with its own step size."""
        return [{"params": list(net.parameters()), "lr": lr}]

    def replayed_rows(self, draw: int, usual: int) -> int:
        """How many samples one of the draws asks for."""
        return usual

    def stored_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The precision the memory keeps a field in, if not its own."""
        return dtype

    def backward(self, net: Tapped, losses: Fields) -> None:
        """Leave the step's gradient in the parameters: that of the sum of the losses."""
        total: Tensor = torch.stack(list(losses.values())).sum()
        total.backward()
        if net.sharing is not None:
            moved = dict.fromkeys((*net.parameters(), *self.parameters()))  # each once
            net.average([each.grad for each in moved if each.grad is not None])

    def condensed(self, features: Fields) -> Fields:
        """What :meth:`observe` reads of the tapped layers: processes that share a step send each other no more."""
        return features

    def after_update(self, net: Tapped, now: Fields) -> None:
        """Called behind every optimiser step."""

    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields | None:
        """Called when a task ends, on streams that say so. What is returned is the memory's content from then on."""
        return None

    def expand(self, net: Tapped) -> None:
        """Grow by what one more task needs; called behind :meth:`at_boundary`, and as often when a run is resumed."""

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        """Get outputs for new classes; as often when a run is resumed.

        What a method keeps for each class or weight grows along. Returned are the stored fields that change.
        """
        growth.widen(net.body)
        return {}

    def predict(self, net: Tapped, x: Inputs, task: int | None = None) -> Tensor:
        """Logits for evaluation; ``task`` is known in the Task-IL setting only. [rows, classes]"""
        return net.passes(x)[0].logits
