"""Which samples stay when some must go: balanced over classes, and over easy and hard samples inside each class.

Within a class of n samples that keeps q, the sample of rank i, sorted by loss, stays when floor((i + 1) q / n + offset)
steps up. A GPU sorts all samples, since to ask how many classes there are would stall it. On the host only classes that
lose samples are looked at, and none is sorted: the samples of the ranks that go are found in linear time.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pick_by_loss(label: Tensor, loss: Tensor, capacity: int, offset: float, turn: float) -> Tensor:
    """Which of the samples stay when ``capacity`` of them may. Of equal losses the first comes first. bool [samples]"""
    if len(label) <= capacity:
        return torch.ones_like(label, dtype=torch.bool)
    return (picked_by_sorting if label.is_cuda else picked_on_the_host)(label, loss, capacity, offset, turn)


def picked_by_sorting(label: Tensor, loss: Tensor, capacity: int, offset: float, turn: float) -> Tensor:
    """By whole-batch operations alone: there is room for as many classes as samples, the others are empty."""
    rows = label.shape[0]
    by_loss = loss.argsort(stable=True)
    order = by_loss[label[by_loss].argsort(stable=True)]  # by class, inside a class by loss
    sorted_label = label.gather(0, order)
    starts = torch.zeros_like(label)
    starts[1:] = sorted_label[1:] != sorted_label[:-1]
    member = starts.cumsum(0)  # which class, counted from the smallest label
    counts = torch.zeros(rows, dtype=torch.int64, device=label.device)
    counts.scatter_add_(0, member, torch.ones_like(member))
    start = counts.cumsum(0) - counts
    rank = torch.arange(rows, device=label.device) - start.gather(0, member)
    share, size = (each.double().gather(0, member) for each in (shares(counts, capacity, turn), counts))
    stays = ((rank + 1) * share / size + offset).floor() > (rank * share / size + offset).floor()
    return torch.empty_like(stays).index_copy_(0, order, stays)


def picked_on_the_host(label: Tensor, loss: Tensor, capacity: int, offset: float, turn: float) -> Tensor:
    """The same class by class, of those that keep fewer samples than they have."""
    labels, stays = label.numpy(), torch.ones_like(label, dtype=torch.bool)
    counts = np.bincount(labels)
    classes = counts.nonzero()[0]
    kept = shares(torch.from_numpy(counts[classes]), capacity, turn).numpy()
    for each, share in zip(classes, kept, strict=True):
        size = counts[each]
        if share < size:
            steps = np.floor(np.arange(size + 1) * share / size + offset)
            gone = (steps[1:] <= steps[:-1]).nonzero()[0]  # their ranks
            members = (labels == each).nonzero()[0]
            key = (sortable_bits(loss.numpy()[members]) << 31) + np.arange(size)
            stays.numpy()[members[key.argpartition(gone)[gone]]] = False
    return stays


def sortable_bits(loss: NDArray[np.floating]) -> NDArray[np.int64]:
    """Whole numbers in the order of the losses: the bits of a float are, but below zero backwards."""
    bits = (loss.astype(np.float32) + np.float32(0)).view(np.int32)  # -0.0 is 0.0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


def freed_slots(stays: Tensor, capacity: int) -> Tensor:
    """The slot of each sample that follows the stored ones: of those that stay the next one freed, else the capacity.

    As many stay of them as stored ones go.
    """
    entering = stays[capacity:]
    freed = places_of(~stays[:capacity], len(entering))
    return torch.where(entering, freed[entering.cumsum(0) - 1], capacity)


def places_of(chosen: Tensor, most: int) -> Tensor:
    """Where ``chosen`` is true, in order, and its length for each that ``most`` is more. [most]"""
    rows, device = len(chosen), chosen.device
    number = chosen.cumsum(0).where(chosen, 0)  # 1, 2, ...; the others all land at 0, which is left out
    return torch.full((most + 1,), rows, device=device).scatter_(0, number, torch.arange(rows, device=device))[1:]


def shares(counts: Tensor, capacity: int, turn: float) -> Tensor:
    """How many samples each class keeps, as equal as the classes' sizes allow, ``capacity`` in all. [classes]

    Every class keeps min(its size, level); the level is as high as the capacity allows. What is left over is less than
    one sample for each class above the level and goes to these in turn, starting at the fraction ``turn`` of their
    list.
    """
    ordered = counts.sort().values
    classes = counts.shape[0]
    below = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)[:-1]])  # samples in the smaller classes
    larger = classes - torch.arange(classes, device=counts.device)  # classes from here on
    levels = (capacity - below) // larger
    level = levels.gather(0, (ordered > levels).int().argmax(0, keepdim=True))  # the first class that does not fit
    share = counts.minimum(level)
    above = counts > level
    left = capacity - share.sum()
    total = above.sum()
    place = (above.cumsum(0) - 1 - (turn * total).long()) % total.clamp(min=1)
    return share + (above & (place < left))
