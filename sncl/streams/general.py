"""The General-CL stream (MNIST-360): two digits at a time, slowly rotating, without task boundaries.

Digits 0..8 are shown in pairs (0,1), (1,2), ..., (8,0), three rounds of them. Each class is cut, in file order, into
six chunks that are used up from the last to the first, one for each of its six segments. While a pair is on, a batch
takes from both chunks in proportion to what is left of them; a segment ends as soon as one chunk is used up, and the
rest of the other is thrown away. The images of class j start at (j - 1) * 60 degrees and rotate by 360 / N_j with
each one shown, about one full turn over the stream. Inside its chunk an image is drawn uniformly *with* replacement:
the chunk only decides how many. Reference: Buzzega et al., Dark Experience for General Continual Learning, 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.transforms import remap, rotation_map
from sncl.tensors.random import generator

DIGITS = 9  # 0..8; a 9 is a turned 6
ROUNDS = 3
CHUNKS = 2 * ROUNDS
RENDERED_AT_ONCE = 512


class Portion(NamedTuple):
    """``length`` consecutive images of ``digit``, out of its chunk ``chunk`` (numbered in file order)."""

    digit: int
    chunk: int
    length: int


class RotationPlan(NamedTuple):
    """Images in the order they are shown: index in the data set, angle in degrees (float64), and the batch sizes."""

    rows: Tensor
    angles: Tensor
    sizes: tuple[int, ...]


def chunk_sizes(count: int) -> list[int]:
    """Six chunks of ``floor(count / 6) + 1``, the last one shorter."""
    size = count // CHUNKS + 1
    last = count - size * (CHUNKS - 1)
    if last < 1:
        raise SnclError(f"A 360 stream needs 36 images of each class to cut into 6 chunks, but one class has {count}.")
    return [size] * (CHUNKS - 1) + [last]


def batch_schedule(counts: list[int], batch_size: int) -> list[tuple[Portion, Portion]]:
    """The batches as (images of the first digit, images of the second), given the number of images of each class."""
    chunks = [chunk_sizes(count) for count in counts]
    unused = [CHUNKS] * len(counts)
    batches = []
    for segment in range(ROUNDS * len(counts)):
        first, second = segment % len(counts), (segment + 1) % len(counts)
        unused[first] -= 1
        unused[second] -= 1
        left, right = chunks[first][unused[first]], chunks[second][unused[second]]
        while left and right:
            from_left = min(round(batch_size * left / (left + right)), left)
            from_right = min(batch_size - from_left, right)
            batches.append((Portion(first, unused[first], from_left), Portion(second, unused[second], from_right)))
            left, right = left - from_left, right - from_right
    return batches


def train_plan(y: Tensor, rows: Tensor, batch_size: int, seed: int) -> RotationPlan:
    """The training stream over these samples of the data set with labels ``y``."""
    of_digit = [rows[y[rows] == digit] for digit in range(DIGITS)]
    batches = batch_schedule([len(samples) for samples in of_digit], batch_size)
    portions = torch.tensor([portion for batch in batches for portion in batch])  # [portions, (digit, chunk, length)]
    digit, chunk = portions[:, :2].repeat_interleave(portions[:, 2], dim=0).unbind(1)  # [shown]
    drawn, angles = torch.empty_like(digit), torch.empty(len(digit), dtype=torch.float64)
    for j, samples in enumerate(of_digit):
        here = (digit == j).nonzero().flatten()
        sizes = torch.tensor(chunk_sizes(len(samples)))
        starts = sizes.cumsum(0) - sizes
        uniform = torch.rand(len(here), dtype=torch.float64, generator=generator(seed, "360", j))
        drawn[here] = samples[starts[chunk[here]] + (uniform * sizes[chunk[here]]).long()]
        angles[here] = (j - 1) * 60.0 + torch.arange(len(here), dtype=torch.float64) * (360.0 / len(samples))
    return RotationPlan(drawn, angles, tuple(left.length + right.length for left, right in batches))


def test_plan(y: Tensor, rows: Tensor) -> RotationPlan:
    """The test set: every sample of classes 0..8 exactly once, class by class in file order, through one full turn."""
    of_digit = [rows[y[rows] == digit] for digit in range(DIGITS)]
    turns = [torch.arange(len(samples), dtype=torch.float64) * (360.0 / max(len(samples), 1)) for samples in of_digit]
    return RotationPlan(torch.cat(of_digit), torch.cat(turns), tuple(len(samples) for samples in of_digit))


def render(x: Tensor, plan: RotationPlan) -> Tensor:
    """The rotated images, uint8, in the order shown."""
    height, width = x.shape[2:]
    parts = zip(torch.split(plan.rows, RENDERED_AT_ONCE), torch.split(plan.angles, RENDERED_AT_ONCE), strict=True)
    return torch.cat(
        [remap(x[rows.to(x.device)], rotation_map(angles, height, width).to(x.device)) for rows, angles in parts]
    )
