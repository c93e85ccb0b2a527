"""The episodic memory: at most a fixed number of samples, as named tensors on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.admission import Admission, Count
from sncl.memory.drawing import latest
from sncl.tensors.fields import Fields, rows, under, within
from sncl.tensors.transfer import upload

FIRST_ROWS = 256  # that there is room for at first
DOUBLED_BYTES = 2**30  # up to which tensors grow twice as long each time


class Memory:
    """At most ``capacity`` samples; which fields they have is decided by the first samples that are admitted.

    Fields are in the order of their names, however they came: a checkpoint knows no order, and a step that is compiled
    for another one adds up in another.

    Everything random comes in as numbers drawn on the host, so how full the memory is and whether a batch admits
    anything is known there without asking the device. ``precision`` says what a field is kept in: its name and type ->
    type.

    On the CPU tensors grow as the memory fills, twice as long each time (beyond 1 GiB by an eighth). On a GPU they have
    their full length from the first sample on, for a captured step reads them where they are; behind the last slot lies
    a spare one, where samples are written that the device decided not to admit.
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
        self._rows: Fields = {}  # each [allocated + 1, ...]
        self.count = Count(capacity)

    @property
    def capacity(self) -> int:
        return self.count.capacity

    @property
    def fields(self) -> Fields:
        """The tensors the samples lie in, each [allocated, ...]."""
        return {name: stored[: self.allocated] for name, stored in self._rows.items()}

    @property
    def tensors(self) -> Fields:
        """What :meth:`sample` reads; longer by the spare slot."""
        return self._rows

    @property
    def allocated(self) -> int:
        """For how many samples there is room already."""
        return next(iter(self._rows.values())).shape[0] - 1 if self._rows else 0

    def __len__(self) -> int:
        """How many samples are stored."""
        return self.admission.filled(self.count)

    @property
    def drawable(self) -> int:
        """How many of them may be replayed."""
        return self.admission.drawable(self.count)

    def drawable_after(self, rows: int) -> int:
        """How many there will be when so many more samples have been offered."""
        return self.admission.drawable(self.count.after(rows))

    def draw(self, wanted: int, uniform: Tensor) -> Tensor:
        """Slots for one replayed batch, each equally likely, none twice; all if there are fewer than wanted.

        ``uniform`` holds one number per slot of the memory, at least of those that may be replayed.
        """
        there = self.drawable
        if there < uniform.shape[0]:
            uniform = uniform[:there]
        return uniform.topk(min(wanted, there), largest=False, sorted=False).indices

    def sample(self, slots: Tensor) -> Fields:
        """The samples in these slots, which stay named by their ``slot``."""
        slots = upload(slots, self.device)
        return {name: stored.index_select(0, slots) for name, stored in self._rows.items()} | {"slot": slots}

    def refresh(self, values: Fields) -> None:
        """Overwrite fields of the samples named by ``slot``."""
        for name, value in values.items():
            if name != "slot":
                stored = self._rows[name]
                known = value.detach() if value.dtype is stored.dtype else value.detach().to(stored.dtype)
                stored.index_copy_(0, values["slot"], known)

    def admit(self, incoming: Fields, uniform: Tensor) -> None:
        """Offer a batch to the memory; of samples that claim one slot the latest stays, as if they had come singly."""
        if not self._rows:
            self._allocate(incoming)
        if not self.admission.admits_none(self.count, uniform):
            self._take(incoming, uniform)
        self.count = self.count.after(rows(incoming))

    @torch.no_grad()
    def _take(self, incoming: Fields, uniform: Tensor) -> None:
        self.reserve(rows(incoming))
        self._write(incoming, self.admission.slots(self.fields, incoming, self.count, uniform))

    def reserve(self, arriving: int) -> None:
        """Have room for what is filled when so many more samples have been offered."""
        length = self._length_after(arriving)
        if self._rows and length > self.allocated:
            self._lengthen(length)

    def bytes_to_reserve(self, arriving: int) -> int:
        """How many bytes :meth:`reserve` would take, beside those taken already."""
        there = self.allocated
        if there == self.count.capacity:
            return 0
        length = self._length_after(arriving)
        return length * self.bytes_per_row() if self._rows and length > there else 0

    def _length_after(self, arriving: int) -> int:
        """How long tensors are when so many more samples have been offered."""
        there = self.allocated
        if there == self.capacity:
            return there
        needed = self.admission.filled(self.count.after(arriving))
        return there if needed <= there else self._length_for(needed)

    def _length_for(self, needed: int) -> int:
        if self.device.type != "cpu":
            return self.capacity
        more = self.allocated if self.allocated * self.bytes_per_row() < DOUBLED_BYTES else self.allocated // 8
        return min(self.capacity, max(needed, self.allocated + more, FIRST_ROWS))

    def _lengthen(self, length: int) -> None:
        for name, stored in self._rows.items():
            longer = stored.new_zeros((length + 1, *stored.shape[1:]))
            longer[: len(self)] = stored[: len(self)]
            self._rows[name] = longer

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
        """Keep these fields [allocated, ...] in another shape from now on."""
        for name, value in fields.items():
            self._rows[name] = torch.cat([value, torch.zeros_like(value[:1])]).to(self._rows[name])

    def content(self) -> Fields:
        """The stored samples."""
        return {name: stored[: len(self)] for name, stored in self.fields.items()}

    def _write(self, incoming: Fields, slots: Tensor) -> None:
        if slots.device.type == "cpu":
            source, taken = (upload(each, self.device) for each in latest(slots, self.capacity))
            if taken.numel() == 0:
                return
        else:  # not asked how many there are, which would stall a GPU: the others go to the spare slot
            source = torch.arange(len(slots), device=slots.device)
            winner = torch.full((self.capacity + 1,), -1, device=slots.device).scatter_reduce_(0, slots, source, "amax")
            taken = torch.where(winner[slots] == source, slots, self.capacity)
        for name, stored in self._rows.items():
            stored.index_copy_(0, taken, incoming[name].index_select(0, source).to(stored.dtype))

    def _allocate(self, incoming: Fields) -> None:
        """Have empty fields like those of these samples, which may fill them."""
        missing = [name for name in self.admission.reads if name not in incoming]
        if missing:
            raise SnclError(f"this memory's admission needs {missing[0]!r} of every sample; the method leaves it out")
        self._rows = {}
        length = self._length_for(rows(incoming))
        try:
            self._rows = {
                name: torch.zeros(
                    (length + 1, *value.shape[1:]), dtype=self.precision(name, value.dtype), device=self.device
                )
                for name, value in sorted(incoming.items())
            }
        except (RuntimeError, MemoryError) as error:  # what torch raises where there is no room
            each = sum(
                value.shape[1:].numel() * self.precision(name, value.dtype).itemsize for name, value in incoming.items()
            )
            raise SnclError(
                f"a `memory` of {self.capacity:,} samples of {each:,} bytes takes {each * self.capacity / 2**30:,.1f} "
                f"GiB, for which {self.device} has no room; use a smaller `memory`"
            ) from error

    def bytes_per_row(self) -> int:
        """What one remembered sample costs, all fields together."""
        return sum(stored.element_size() * stored[0].numel() for stored in self._rows.values())

    def __repr__(self) -> str:
        known = f"{len(self):,} of {self.capacity:,} samples, {type(self.admission).__name__}"
        if self._rows:
            known += f", {self.bytes_per_row():,} bytes each: {', '.join(self._rows)}"
        return f"Memory({known}; {self.device})"

    def state(self) -> Fields:
        return {"count": torch.tensor(self.count), **under("rows", self.content())}

    @torch.no_grad()
    def load(self, state: Fields) -> None:
        """The inverse of :meth:`state`; an error leaves the memory as it is."""
        count, stored = self._checked(state)
        self.count = count
        self._rows = {}
        if stored:
            self._allocate(stored)
        for name, value in stored.items():
            self._rows[name][: len(value)] = value

    def _checked(self, state: Fields) -> tuple[Count, Fields]:
        """What a state counts and stores, if it is that of a memory like this one."""
        counted, stored = state["count"].tolist(), within("rows", state)
        if len(counted) != len(self.count):
            raise SnclError(f"this checkpoint is damaged: its memory cannot have counted {counted}")
        count = Count(*counted)
        plausible = all(type(each) is int and each >= 0 for each in count) and count.in_task <= count.seen
        if not plausible or count.base > self.capacity or (count.seen and not stored and self.admission.filled(count)):
            raise SnclError(f"this checkpoint is damaged: its memory cannot have counted {count._asdict()}")
        if count.capacity != self.capacity:
            raise SnclError(f"this checkpoint belongs to another learner: its memory is not of {self.capacity} samples")
        filled = self.admission.filled(count)
        if {value.shape[:1] for value in stored.values()} not in ({(filled,)}, {(self.capacity,)}, set()):
            raise SnclError(f"this checkpoint is damaged: its memory does not hold the {filled} samples it counted")
        stored = {name: value[:filled] for name, value in stored.items()}  # early versions stored empty slots, too
        unlike = [name for name, value in self.fields.items() if not _alike(stored.get(name), value)]
        unlike += [name for name in ("y", *self.admission.reads) if stored and name not in stored]
        if stored and unlike:
            raise SnclError(f"this checkpoint belongs to another learner: its memory has another {unlike[0]!r}")
        return count, stored


def _alike(given: Tensor | None, ours: Tensor) -> bool:
    return given is not None and given.shape[1:] == ours.shape[1:] and given.dtype == ours.dtype
