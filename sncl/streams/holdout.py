"""Rows that are held out of training: as many of each class as asked for, chosen by a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.random import generator


def hold_out(y: Tensor, part: float, seed: int) -> tuple[Tensor, Tensor | None]:
    """Rows to learn from and rows held out, ``round(part * n)`` of each class with n rows, both in file order."""
    if part == 0.0:
        return torch.arange(len(y)), None
    counts = torch.bincount(y)
    held_of = torch.tensor([round(part * count) for count in counts.tolist()])
    if ((held_of == 0) | (held_of == counts)).logical_and(counts > 0).any():
        raise SnclError(f"A validation part of {part} leaves a class with no row to learn from or none to test on.")
    return chosen(y, held_of, seed, "validation")


def hold_out_test(strata: Tensor, part: float, seed: int) -> tuple[Tensor, Tensor]:
    """The same for data without a test set: at least one row of each stratum that has two."""
    counts = torch.bincount(strata)
    held_of = torch.tensor([max(round(part * count), 1) if count > 1 else 0 for count in counts.tolist()])
    return chosen(strata, held_of, seed, "test")


def chosen(strata: Tensor, held_of: Tensor, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Rows left and rows held out, ``held_of`` [strata] of each stratum, both in file order."""
    shuffled = torch.randperm(len(strata), generator=generator(seed, purpose))
    by_class = shuffled[torch.sort(strata[shuffled], stable=True).indices]  # class by class, shuffled within each
    counts = torch.bincount(strata)
    rank = torch.arange(len(strata)) - (counts.cumsum(0) - counts)[strata[by_class]]  # place within its class
    held = torch.zeros(len(strata), dtype=torch.bool)
    held[by_class[rank < held_of[strata[by_class]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()
