"""Streams over the embedded digits, and what they show. Used by many tests."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sncl.streams.build import build
from sncl.streams.datasets.sources import Dataset, load
from sncl.streams.stream import Stream

DIGITS = load("digits", Path("."))


def made(name: str, **options: object) -> Stream:
    return build(name, dataset=DIGITS, **options)  # type: ignore[arg-type]


def epoch(stream: Stream, task: int, number: int = 0) -> tuple[Tensor, Tensor]:
    batches = [stream.batch(task, positions) for positions in stream.positions(task, number)]
    x, y = zip(*batches, strict=True)
    return torch.cat(x), torch.cat(y)


def bag(x: Tensor, y: Tensor) -> list[tuple[int, ...]]:
    """Images and labels without their order."""
    return sorted((int(label), *image) for image, label in zip(x.flatten(1).tolist(), y, strict=True))


def numbered() -> Dataset:
    """The labels of the digits under images that are all different, to tell the rows apart."""
    x = torch.arange(1437)
    x = torch.stack([x // 256, x % 256], dim=1).to(torch.uint8).reshape(-1, 2, 1, 1).expand(-1, -1, 2, 2).contiguous()
    return Dataset("numbered", x, DIGITS.train_y, torch.full_like(x[:360], 255), DIGITS.test_y, 10)
