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
from sncl.memory.by_loss import freed_slots, pick_by_loss
from sncl.tensors.fields import Fields
from sncl.tensors.transfer import upload


class Count(NamedTuple):
    """What a memory has counted: samples offered in all and in this task, and slots filled when the last task ended."""

    capacity: int
    seen: int = 0
    in_task: int = 0
    base: int = 0

    def after(self, samples: int) -> Count:
        """What it has counted when so many more samples have been offered."""
        return Count(self.capacity, self.seen + samples, self.in_task + samples, self.base)


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
    if count.seen < count.capacity:
        return False
    least: float = min(first for first, *_ in uniform.tolist())
    return least * (count.seen + 1) >= count.capacity


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
        return upload(slots, device).index_copy(0, here, freed_slots(keep, capacity))
