"""Which batch of a stream comes when, from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from sncl.streams.stream import Stream


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
