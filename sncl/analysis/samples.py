"""Which samples of a stream an analysis looks at: all of them, or some that a seed chooses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from sncl.streams.stream import Stream
from sncl.tensors.random import generator

YIELDED_AT_ONCE = 250


class TrainingSamples:
    """``count`` samples drawn from all tasks together, without replacement; 0, or more than there are: every sample.

    Iterating makes images (before the transform) and labels batch by batch, so nothing large is held.
    """

    def __init__(self, stream: Stream, count: int, seed: int) -> None:
        self.stream = stream
        sizes = [len(phase.rows) for phase in stream.phases]
        total = sum(sizes)
        chosen = torch.arange(total)
        if 0 < count < total:
            chosen = torch.randperm(total, generator=generator(seed, "training rows"))[:count].sort().values
        starts = torch.tensor([0, *sizes]).cumsum(0)
        self.positions = [
            chosen[(chosen >= start) & (chosen < end)] - start for start, end in pairwise(starts.tolist())
        ]

    def __len__(self) -> int:
        return sum(len(positions) for positions in self.positions)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for task, positions in enumerate(self.positions):
            for part in positions.split(YIELDED_AT_ONCE):
                if len(part):
                    yield self.stream.batch(task, part)


def samples_of_test(stream: Stream, task: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Up to ``count`` samples of the test set of a task (0: all), in their order: images and labels."""
    x, y = stream.test(task)
    if 0 < count < len(y):
        drawn = torch.randperm(len(y), generator=generator(seed, "test rows", task))[:count].sort().values
        x, y = x[drawn.to(x.device)], y[drawn.to(y.device)]
    return x, y


def samples_of_tests(stream: Stream, count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """About ``count`` test samples, as many of each task (0: all), by task."""
    each = math.ceil(count / stream.test_tasks)
    return [samples_of_test(stream, task, each, seed) for task in range(stream.test_tasks)]
