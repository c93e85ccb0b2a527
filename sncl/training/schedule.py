"""Which batch of a stream comes when, from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.stream import Stream


class StepSizes(NamedTuple):
    """A step size that drops late in each task: ``factor`` times what it was, over the last ``part`` of the steps."""

    factor: float
    part: float

    def factor_at(self, stream: Stream, epochs: int, place: Place) -> float:
        """What the step size is multiplied by at a place of the stream."""
        batches = -(-len(stream.phases[place.task].rows) // stream.batch_size)
        steps, made = epochs * batches, place.epoch * batches + place.batch
        return self.factor if steps - made <= max(1, round(self.part * steps)) else 1.0


def check_drop(factor: float, part: float, once: bool) -> None:
    """Refuse a drop that is none, and one on a stream that does not say where its tasks end: ``once``."""
    if not 0 < factor <= 1:
        raise SnclError(f"`lr_drop` multiplies the step size late in each task, above 0 and up to 1, not {factor}")
    if not 0 < part <= 1:
        raise SnclError(f"`lr_drop_part` is the last part of a task's steps, above 0 and up to 1, not {part}")
    if factor < 1 and once:
        raise SnclError(f"`lr_drop={factor}` needs tasks that end, and this stream has no boundaries; leave it out")


class Place(NamedTuple):
    """The next batch to learn."""

    task: int = 0
    epoch: int = 0
    batch: int = 0


def batch_schedule(stream: Stream, epochs: int, start: Place) -> Iterator[tuple[Place, Tensor, bool]]:
    """The batches from ``start`` on: where each is, its positions in the phase, and whether it ends its task."""
    for task in range(start.task, stream.tasks):
        for epoch in range(start.epoch if task == start.task else 0, epochs):
            batches = stream.positions(task, epoch)
            first = start.batch if (task, epoch) == start[:2] else 0
            for number in range(first, len(batches)):
                last = epoch == epochs - 1 and number == len(batches) - 1
                yield Place(task, epoch, number), batches[number], last


def total_steps(stream: Stream, epochs: int) -> int:
    """How many batches a run learns."""
    return sum(len(stream.positions(task, 0)) for task in range(stream.tasks)) * epochs


def following(place: Place, last: bool) -> Place:
    """The place behind this one; ``last`` says that it ends its task."""
    return Place(place.task + 1) if last else place._replace(batch=place.batch + 1)
