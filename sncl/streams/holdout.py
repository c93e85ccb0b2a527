"""Samples held out of training: a fraction of each class, chosen by a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.random import generator


def hold_out(y: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor | None]:
    """Indices to train on and indices held out, ``round(fraction * n)`` of each class with n samples, in file order."""
    if fraction == 0.0:
        return torch.arange(len(y)), None
    counts = torch.bincount(y)
    held_out = torch.tensor([round(fraction * count) for count in counts.tolist()])
    if ((held_out == 0) | (held_out == counts)).logical_and(counts > 0).any():
        raise SnclError(f"`validation={fraction}` leaves a class with no row to learn from or none to test on")
    return stratified(y, held_out, seed, "validation")


def hold_out_test(strata: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """The same for data without a test set: at least one sample of each stratum that has two."""
    counts = torch.bincount(strata)
    held_out = torch.tensor([max(round(fraction * count), 1) if count > 1 else 0 for count in counts.tolist()])
    return stratified(strata, held_out, seed, "test")


def stratified(strata: Tensor, held_out: Tensor, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Indices kept and indices held out, ``held_out`` [strata] of each stratum, both in file order."""
    shuffled = torch.randperm(len(strata), generator=generator(seed, purpose))
    by_stratum = shuffled[torch.sort(strata[shuffled], stable=True).indices]  # shuffled within each stratum
    counts = torch.bincount(strata)
    rank = torch.arange(len(strata)) - (counts.cumsum(0) - counts)[strata[by_stratum]]  # position in its stratum
    held = torch.zeros(len(strata), dtype=torch.bool)
    held[by_stratum[rank < held_out[strata[by_stratum]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()
