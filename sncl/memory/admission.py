"""Which of the samples that pass by enter the memory, and whose slot they take.

An admission answers with one slot for every incoming sample; the memory's capacity stands for "not admitted". The
random numbers are given, so that an admission is a pure function and a resumed run decides as the unbroken one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Fields
from sncl.tensors.transfer import upload


class Count(NamedTuple):
    """What a memory has counted: samples offered in all and in this task, and slots filled when the last task ended."""

    capacity: int
    seen: int = 0
    in_task: int = 0
    base: int = 0


def reservoir_slots(seen: int, capacity: int, uniform: Tensor) -> Tensor:
    """Vitter's algorithm R for a whole batch: fill first; then sample n takes slot floor(u * (n + 1)) if there is one.

    ``uniform`` holds one number in [0, 1) per sample. Computed on the host: it needs nothing the device knows.
    """
    number = seen + torch.arange(uniform.shape[0])  # how many samples came before each
    drawn = (uniform * (number + 1)).long()
    return torch.where(number < capacity, number, drawn.clamp(max=capacity))


class Admission(ABC):
    """The rule by which a memory chooses.

    ``uniform`` [rows, 3] are host numbers in [0, 1): the first column thins as a reservoir does, the others are for
    the rule's own choices. ``stored`` is the memory, at least as long as it is filled behind this batch, and
    ``incoming`` the batch with the same fields, both on the device.
    """

    #: fields the rule reads from the memory and the incoming samples
    reads: tuple[str, ...] = ()

    @abstractmethod
    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        """One slot per incoming sample, the capacity for a sample that is not admitted. [rows]"""

    def admits_none(self, count: Count, uniform: Tensor) -> bool:
        """Whether these numbers already tell that no sample of a batch enters: the usual case in a long stream."""
        return False

    def filled(self, count: Count) -> int:
        """How many slots hold a sample: the first ones. Usually every sample is taken while there is room."""
        return min(count.seen, count.capacity)

    def drawable(self, count: Count) -> int:
        """How many of them may be replayed."""
        return self.filled(count)


def thins_all(count: Count, uniform: Tensor) -> bool:
    """Whether a full reservoir admits none of these samples: not even the least number, had it come first."""
    return count.seen >= count.capacity and float(uniform[:, 0].min()) * (count.seen + 1) >= count.capacity


class Reservoir(Admission):
    """Every sample ever seen is in the memory with equal probability (Vitter, 1985)."""

    def admits_none(self, count: Count, uniform: Tensor) -> bool:
        return thins_all(count, uniform)

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        return reservoir_slots(count.seen, count.capacity, uniform[:, 0])


class PerTask(Admission):
    """The memory in ``parts`` equal parts, one for a random sample of each task; only past tasks are replayed.

    The part of the task at hand is a reservoir of its own, so no second look at the task is needed.
    """

    def __init__(self, parts: int) -> None:
        if parts < 1:
            raise SnclError(f"`parts` is how many tasks share the memory: at least 1, not {parts}")
        self.parts = parts

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        if count.base >= count.capacity:
            raise SnclError(f"the memory's {self.parts} parts are all taken; set `parts` to how many tasks will come")
        share = self._share(count)
        slots = reservoir_slots(count.in_task, share, uniform[:, 0])
        return torch.where(slots < share, count.base + slots, count.capacity)

    def filled(self, count: Count) -> int:
        return count.base + min(count.in_task, self._share(count))

    def drawable(self, count: Count) -> int:
        return count.base

    def _share(self, count: Count) -> int:
        return min(max(1, count.capacity // self.parts), count.capacity - count.base)


class AtBoundaries(Admission):
    """Nothing enters with the batches; the method itself fills the memory when a task ends."""

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        return torch.full((uniform.shape[0],), count.capacity)

    def filled(self, count: Count) -> int:
        return count.base


class LossAwareReservoir(Admission):
    """Algorithm 1 of the paper (LRS): balanced over classes, and over easy and hard samples inside each class.

    Incoming samples are thinned as a reservoir would thin them; the survivors and the stored samples are sorted by loss
    within their class, and every class keeps its share by picking at even intervals over the sorted losses.

    Open in the paper, and chosen here: the thinning (without it every batch would replace most of the memory); a class
    with fewer samples than its share keeps them all, and the others share what it leaves; the odd slots of a share that
    is no whole number go to classes in turn from a random start; the even intervals have a random offset.
    """

    reads = ("y", "loss")

    def admits_none(self, count: Count, uniform: Tensor) -> bool:
        return thins_all(count, uniform)

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        seen, capacity = count.seen, count.capacity
        chosen = reservoir_slots(seen, capacity, uniform[:, 0])  # on the host
        number = seen + torch.arange(chosen.shape[0])
        candidates = ((number >= capacity) & (chosen < capacity)).nonzero()[:, 0]
        slots = torch.where(number < capacity, number, capacity)
        if candidates.numel() == 0:
            return slots
        device = stored["y"].device
        label, loss = stored["y"], stored["loss"].float()
        filling = int((number < capacity).sum())
        if filling:  # this batch both fills the memory up and overflows it
            label, loss = label.clone(), loss.clone()
            label[seen:] = incoming["y"][:filling]
            loss[seen:] = incoming["loss"][:filling].float()
        here = upload(candidates, device)
        keep = pick_by_loss(
            torch.cat([label, incoming["y"][here]]),
            torch.cat([loss, incoming["loss"][here].float()]),
            capacity,
            offset=float(uniform[0, 1]),
            turn=float(uniform[0, 2]),
        )
        entering = keep[capacity:]  # as many as are freed
        freed = torch.full((len(here) + 1,), capacity, device=device)
        place = (~keep[:capacity]).cumsum(0).where(~keep[:capacity], 0)  # 1, 2, ... for the slots that are freed
        freed.scatter_(0, place, torch.arange(capacity, device=device))  # the others all land at 0, which nobody reads
        own = torch.where(entering, freed[entering.cumsum(0)], capacity)
        return upload(slots, device).index_copy(0, here, own)


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


def pick_by_loss(label: Tensor, loss: Tensor, capacity: int, offset: float, turn: float) -> Tensor:
    """Which of the samples stay when ``capacity`` of them may: balanced classes, even intervals over sorted losses.

    Within a class of n samples that keeps q, the sample of rank i stays when floor((i + 1) q / n + offset) steps up.
    How many classes there are is not asked, which would stall a GPU: there is room for as many as samples, the others
    are empty.
    """
    rows = label.shape[0]
    if rows <= capacity:
        return torch.ones_like(label, dtype=torch.bool)
    order = by_class_and_loss(label, loss)
    sorted_label = label.gather(0, order)
    starts = torch.zeros_like(label)
    starts[1:] = sorted_label[1:] != sorted_label[:-1]
    member = starts.cumsum(0)  # which class, counted from the smallest label
    classes = rows if label.is_cuda else int(member[-1]) + 1
    counts = torch.zeros(classes, dtype=torch.int64, device=label.device)
    counts.scatter_add_(0, member, torch.ones_like(member))
    start = counts.cumsum(0) - counts
    rank = torch.arange(rows, device=label.device) - start.gather(0, member)
    share, size = (each.double().gather(0, member) for each in (shares(counts, capacity, turn), counts))
    stays = ((rank + 1) * share / size + offset).floor() > (rank * share / size + offset).floor()
    return torch.empty_like(stays).index_copy_(0, order, stays)


def by_class_and_loss(label: Tensor, loss: Tensor) -> Tensor:
    """The samples in the order of their class, inside a class of their loss; of equal losses the first sample first."""
    rows = label.shape[0]
    if label.is_cuda or rows > 2**20 or int(label.max()) >= 2**11:
        order = loss.argsort(stable=True)
        return order[label[order].argsort(stable=True)]
    # One whole number says it all. NumPy sorts thousands of them five times as fast as torch, but keeps no order among
    # equal ones; these are all different. The bits of a float are in the order of its value, below zero backwards.
    bits = (loss.float() + 0.0).view(torch.int32)  # -0.0 is 0.0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = (label << 52) + (bits.long() << 20) + torch.arange(rows)
    return torch.from_numpy(key.numpy().argsort())
