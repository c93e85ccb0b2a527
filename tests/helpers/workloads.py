"""Short programs that use the library by hand, for forks whose files are under attack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from blobs import CLASSES, FEATURES, batches

from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.training.follow import Position, follow
from sncl.training.learner import Learner

BATCHES = 8


def learner(method: str = "sncl") -> Learner:
    torch.manual_seed(0)
    return Learner(MLP(FEATURES, CLASSES, width=8), method, memory=10, replay=4, lr=0.05, device="cpu")


def following(snapshot: str) -> None:
    """Follow a stream that can be read again, with a snapshot of every batch, and tell of each that is stored."""

    def source(position: Position) -> Iterator[Any]:
        return iter([(x, y, number) for number, (x, y) in enumerate(batches(BATCHES))][position.batches :])

    with one_line():
        for answer in follow(learner(), source, snapshot=snapshot, every=1):
            print(answer.position.batches, flush=True)


def saving(path: str) -> None:
    """Load what is there, learn the batches behind it and save each time; tell of each that is saved."""
    subject = learner()
    with one_line():
        if Path(path).exists():
            subject.load(path)
        for x, y in batches(BATCHES)[subject.steps :]:
            subject.learn(x, y)
            subject.save(path)
            print(subject.steps, flush=True)


@contextmanager
def one_line() -> Iterator[None]:
    """An error of the library is one line and exit code 2, as programs of users would have it."""
    try:
        yield
    except SnclError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        raise SystemExit(2) from error
