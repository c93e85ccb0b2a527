"""The episodic memory: a fixed number of samples, as named tensors on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.admission import Admission, Count
from sncl.tensors.fields import Fields, rows, under, within
from sncl.tensors.transfer import upload


class Memory:
    """At most ``capacity`` samples; which fields they have is decided by the first samples that are admitted.

    Fields are in the order of their names, however they came: a checkpoint knows no order, and a step that is compiled
    for another one adds up in another.

    Everything random comes in as numbers drawn on the host, so how full the memory is and whether a batch admits
    anything is known there without asking the device. Behind the last slot lies a spare one: samples that a device
    decided not to admit are written there. ``precision`` says what a field is kept in: its name and type -> type.
    """

    def __init__(
        self,
        capacity: int,
        admission: Admission,
        device: torch.device | str = "cpu",
        precision: Callable[[str, torch.dtype], torch.dtype] | None = None,
    ) -> None:
        if capacity < 1:
            raise SnclError(f"`memory` is at least 1 sample, not {capacity}")
        self.admission = admission
        self.device = torch.device(device)
        self.precision = precision or (lambda name, dtype: dtype)
        self._rows: Fields = {}  # each [capacity + 1, ...]
        self.count = Count(capacity)

    @property
    def capacity(self) -> int:
        return self.count.capacity

    @property
    def fields(self) -> Fields:
        """The tensors the samples lie in, each [capacity, ...]."""
        return {name: stored[: self.capacity] for name, stored in self._rows.items()}

    def __len__(self) -> int:
        """How many samples are stored."""
        return self.admission.filled(self.count)

    @property
    def drawable(self) -> int:
        """How many of them may be replayed."""
        return self.admission.drawable(self.count)

    def drawable_after(self, rows: int) -> int:
        """How many there will be when so many more samples have been offered."""
        count = self.count
        return self.admission.drawable(count._replace(seen=count.seen + rows, in_task=count.in_task + rows))

    def draw(self, wanted: int, uniform: Tensor) -> Tensor:
        """Slots for one replayed batch, each equally likely, none twice; all if there are fewer than wanted.

        ``uniform`` holds one number per slot of the memory.
        """
        return uniform[: self.drawable].topk(min(wanted, self.drawable), largest=False, sorted=False).indices

    def sample(self, slots: Tensor) -> Fields:
        """The samples in these slots, which stay named by their ``slot``."""
        slots = upload(slots, self.device)
        return {name: stored.index_select(0, slots) for name, stored in self._rows.items()} | {"slot": slots}

    @torch.no_grad()
    def refresh(self, values: Fields) -> None:
        """Overwrite fields of the samples named by ``slot``."""
        for name, value in values.items():
            if name != "slot":
                self._rows[name].index_copy_(0, values["slot"], value.to(self._rows[name].dtype))

    @torch.no_grad()
    def admit(self, incoming: Fields, uniform: Tensor) -> None:
        """Offer a batch to the memory; of samples that claim one slot the latest stays, as if they had come singly."""
        if not self._rows:
            self._allocate(incoming)
        arrived, count = rows(incoming), self.count
        if not self.admission.admits_none(count, uniform):
            self._write(incoming, self.admission.slots(self.fields, incoming, count, uniform))
        self.count = count._replace(seen=count.seen + arrived, in_task=count.in_task + arrived)

    def boundary(self) -> None:
        """A task has ended: what is stored now is of past tasks."""
        self.count = self.count._replace(in_task=0, base=len(self))

    @torch.no_grad()
    def replace(self, content: Fields) -> None:
        """Hold exactly these samples from now on; the task they were chosen at has ended."""
        if rows(content) > self.capacity:
            raise SnclError(f"{rows(content)} samples do not fit into a memory of {self.capacity}")
        self._allocate(content)
        for name, value in content.items():
            self._rows[name][: len(value)] = value
        self.count = self.count._replace(in_task=0, base=rows(content))

    @torch.no_grad()
    def reshape(self, fields: Fields) -> None:
        """Keep these fields [capacity, ...] in another shape from now on."""
        for name, value in fields.items():
            self._rows[name] = torch.cat([value, torch.zeros_like(value[:1])]).to(self._rows[name])

    def content(self) -> Fields:
        """The stored samples."""
        return {name: stored[: len(self)] for name, stored in self.fields.items()}

    def _write(self, incoming: Fields, slots: Tensor) -> None:
        rank = torch.arange(len(slots), device=slots.device)
        winner = torch.full((self.capacity + 1,), -1, device=slots.device).scatter_reduce_(0, slots, rank, "amax")
        if slots.device.type == "cpu":
            taken = (winner[: self.capacity] >= 0).nonzero()[:, 0]
            if taken.numel() == 0:
                return
            source, taken = upload(winner[taken], self.device), upload(taken, self.device)
        else:  # not asked how many there are, which would stall a GPU: the others go to the spare slot
            source, taken = rank, torch.where(winner[slots] == rank, slots, self.capacity)
        for name, stored in self._rows.items():
            stored.index_copy_(0, taken, incoming[name].index_select(0, source).to(stored.dtype))

    def _allocate(self, incoming: Fields) -> None:
        missing = [name for name in self.admission.reads if name not in incoming]
        if missing:
            raise SnclError(f"this memory's admission needs {missing[0]!r} of every sample; the method leaves it out")
        self._rows = {
            name: torch.zeros(
                (self.capacity + 1, *value.shape[1:]), dtype=self.precision(name, value.dtype), device=self.device
            )
            for name, value in sorted(incoming.items())
        }

    def bytes_per_row(self) -> int:
        """What one remembered sample costs, all fields together."""
        return sum(stored.element_size() * stored[0].numel() for stored in self.fields.values())

    def state(self) -> Fields:
        return {"count": torch.tensor(self.count), **under("rows", self.fields)}

    @torch.no_grad()
    def load(self, state: Fields) -> None:
        """The inverse of :meth:`state`; an error leaves the memory as it is."""
        count, stored = self._checked(state)
        self.count = count
        self._rows = {}
        if stored:
            self._allocate({name: value.to(self.device) for name, value in stored.items()})
        for name, value in stored.items():
            self._rows[name][: self.capacity] = value

    def _checked(self, state: Fields) -> tuple[Count, Fields]:
        """What a state counts and stores, if it is that of a memory like this one."""
        counted, stored = state["count"].tolist(), within("rows", state)
        if len(counted) != len(self.count):
            raise SnclError(f"this checkpoint is damaged: its memory cannot have counted {counted}")
        count = Count(*counted)
        plausible = all(type(each) is int and each >= 0 for each in count) and count.in_task <= count.seen
        if not plausible or count.base > self.capacity or (count.seen and not stored and self.admission.filled(count)):
            raise SnclError(f"this checkpoint is damaged: its memory cannot have counted {count._asdict()}")
        if count.capacity != self.capacity or any(value.shape[:1] != (self.capacity,) for value in stored.values()):
            raise SnclError(f"this checkpoint belongs to another learner: its memory is not of {self.capacity} samples")
        unlike = [name for name, value in self.fields.items() if not _alike(stored.get(name), value)]
        unlike += [name for name in ("y", *self.admission.reads) if stored and name not in stored]
        if stored and unlike:
            raise SnclError(f"this checkpoint belongs to another learner: its memory has another {unlike[0]!r}")
        return count, stored


def _alike(given: Tensor | None, ours: Tensor) -> bool:
    return given is not None and given.shape == ours.shape and given.dtype == ours.dtype
