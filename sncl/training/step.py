"""One training step as a function of tensors: losses, gradient, update.

Whatever is random about a step and small was drawn on the host before and comes in with the batch. A step reads the
memory and does not write it (:class:`sncl.training.replay.Replay` does), and no method knows how it is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.memory.memory import Memory
from sncl.methods.method import Method, Outcome
from sncl.networks.taps import Tapped
from sncl.streams.transforms import Transform, training_input
from sncl.tensors.fields import Fields, inputs, named, rows
from sncl.training.clipping import Clip
from sncl.training.descent import Optimizer


class Draw(NamedTuple):
    """One replayed batch: its slots in the memory, and the random numbers of the transform of its samples."""

    slots: Tensor
    numbers: Tensor


class StepInput(NamedTuple):
    """What a step depends on besides the network and the memory.

    ``batch`` holds the inputs (``x``, or several ``x/name``) and labels ``y`` as they came, on the device; ``numbers``
    are the random numbers of their transform and ``draws`` the replayed batches, both drawn on the host.
    """

    batch: Fields
    numbers: Tensor
    draws: tuple[Draw, ...] = ()

    def drawn(self) -> list[Tensor]:
        """All that was drawn on the host, one tensor after the other."""
        return [self.numbers, *chain.from_iterable(self.draws)]

    def with_drawn(self, drawn: Sequence[Tensor]) -> StepInput:
        """The same input with other tensors for those of :meth:`drawn`."""
        numbers, *rest = drawn
        draws = (Draw(*pair) for pair in zip(rest[::2], rest[1::2], strict=True))
        return self._replace(numbers=numbers, draws=tuple(draws))


Observe = Callable[[Method, Tapped, Transform, Fields, tuple[Fields, ...], list[Tensor]], tuple[Outcome, Fields]]


def observe(
    method: Method, net: Tapped, transform: Transform, now: Fields, past: tuple[Fields, ...], numbers: list[Tensor]
) -> tuple[Outcome, Fields]:
    """The forward half of a step: all samples through the transform at once, and what the method makes of them."""
    batches = (now, *past)
    each = [named(inputs(batch)) for batch in batches]
    together = {name: torch.cat([part[name] for part in each]) for name in each[0]}
    transformed = named(training_input(transform, inputs(together), torch.cat(numbers)))
    seen, start = [], 0
    for batch in batches:
        own = slice(start, start := start + rows(batch))
        seen.append(batch | {name: value[own] for name, value in transformed.items()})
    return method.observe(net, seen[0], tuple(seen[1:])), seen[0]


def computed_in(precision: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Let passes through a network be computed in this precision."""
    return nullcontext() if precision == torch.float32 else torch.autocast(device.type, precision)


@dataclass(frozen=True)
class Step:
    """One step of a method on a network; ``observe`` is :func:`observe`, or that compiled."""

    method: Method
    net: Tapped
    optimizer: Optimizer
    memory: Memory | None
    transform: Transform
    precision: torch.dtype
    clip: Clip | None = None
    observe: Observe = observe

    def __call__(self, given: StepInput) -> Outcome:
        past = () if self.memory is None else tuple(self.memory.sample(draw.slots) for draw in given.draws)
        numbers = [given.numbers, *(draw.numbers for draw in given.draws)]
        self.net.zero_grad()  # every parameter, also one that no optimiser moves
        self.optimizer.zero_grad()  # a method's own parameters lie outside the network
        with computed_in(self.precision, given.batch["y"].device), self.net.shared():
            outcome, now = self.observe(self.method, self.net, self.transform, given.batch, past, numbers)
        self.method.backward(self.net, outcome.losses)
        if self.clip is not None:
            self.clip([each.grad for each in self.net.parameters() if each.grad is not None])
        self.optimizer.step()
        with torch.no_grad():
            self.method.after_update(self.net, now)
        return Outcome(*({name: value.detach() for name, value in part.items()} for part in outcome))
