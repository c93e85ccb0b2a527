"""Two learners in the same state, and a run that goes on exactly where it was saved: asked by many tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from sncl.training.learner import Learner


def same(first: Learner, second: Learner) -> bool:
    """Whether the two have the same state, bit for bit."""
    ours, theirs = first.state(), second.state()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def goes_on_exactly(
    make: Callable[[int], Learner], go: Callable[[Learner, int, int], None], stop: int, end: int, folder: Path
) -> bool:
    """Whether a run saved behind ``stop`` batches and loaded into a learner of another seed ends as an unbroken one.

    ``make`` makes a learner from a seed, ``go`` feeds it the batches from one number to another.
    """
    unbroken, first, second = make(0), make(0), make(9)
    go(unbroken, 0, end)
    go(first, 0, stop)
    first.save(folder / "a")
    second.load(folder / "a")
    go(second, stop, end)
    return same(unbroken, second)
