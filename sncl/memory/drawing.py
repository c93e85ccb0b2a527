"""Slots drawn from a memory of any size: each equally likely, none twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def draw_distinct(wanted: int, there: int, uniform: Callable[[int], Tensor]) -> Tensor:
    """So many different slots of those ``there`` are, in a time that does not grow with them.

    Slots are drawn one after the other and taken unless they were taken before. ``uniform`` draws so many numbers in
    [0, 1); how many it is asked for depends on nothing but the numbers themselves.
    """
    found = torch.zeros(0, dtype=torch.int64)
    while len(found) < wanted:
        both = torch.cat([found, (uniform(wanted) * there).long()])
        _, first = np.unique(both.numpy(), return_index=True)
        found = both[np.sort(first)][:wanted]
    return found


def latest(slots: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Of samples that claim these slots: the latest one of each slot below the capacity, and the slots."""
    if slots.shape[0] == 1:
        return (slots * 0, slots) if slots.item() < capacity else (slots[:0], slots[:0])
    backwards = slots.numpy()[::-1]
    taken, first = np.unique(backwards, return_index=True)
    admitted = np.searchsorted(taken, capacity)
    return torch.from_numpy(len(backwards) - 1 - first[:admitted]), torch.from_numpy(taken[:admitted])
