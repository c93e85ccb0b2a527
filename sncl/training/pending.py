"""Samples of a live stream that were predicted and wait for their labels.

A label that comes later counts for the prediction that was made when it was asked for, not for what the learner would
say by now. Samples with an id are kept, inputs included, and learned when their label comes. Of unlabelled samples
without one only the prediction is kept: it counts if the same inputs come again with a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Fields, Inputs, inputs, mapped, named, rows, under, within

Id = str | int
PREDICTED = "predicted"
FIRST_ROWS = 256  # that there is room for at first
DAMAGED = "this snapshot is damaged: the samples that wait for their labels are not as they were stored"


class LateCount(NamedTuple):
    """Samples with ids that wait for their labels; how many were forgotten so far, since more waited than may; and how
    many late labels so far were for ids that are not known, or not any more."""

    waiting: int = 0
    forgotten: int = 0
    unmatched: int = 0


class Unlabelled:
    """At most ``limit`` samples with ids, and as many predictions of samples without; the oldest are forgotten."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.slots: dict[Id, int] = {}  # the oldest first
        self.free: list[int] = []
        self.samples: Fields = {}  # inputs and predictions, each [room, ...]
        self.asked: dict[int, int] = {}  # predictions by a digest of the inputs, the oldest first
        self.forgotten = self.unmatched = 0

    def count(self) -> LateCount:
        return LateCount(len(self.slots), self.forgotten, self.unmatched)

    # --- samples with ids

    def refuse_known(self, ids: Sequence[Id]) -> None:
        """Refuse ids that are not one for each sample."""
        if len(set(ids)) < len(ids):
            raise SnclError("an id names one sample, and two samples of a batch have the same one")
        for each in ids:
            if each in self.slots:
                raise SnclError(f"the id {each!r} is that of a sample that waits for its label; give each its own")

    def keep(self, ids: Sequence[Id], x: Inputs, predicted: Tensor) -> None:
        """Keep samples under ids that are not known."""
        surplus = max(0, len(ids) - self.limit)
        self.forgotten += surplus
        ids = ids[surplus:]
        if not ids:
            return
        given = {**named(x), PREDICTED: predicted}
        given = {name: value[surplus:].detach().cpu() for name, value in given.items()}
        self._make_room(given)
        taken = [self.free.pop() for _ in ids]
        for name, value in given.items():
            self.samples[name].index_copy_(0, torch.tensor(taken), value)
        self.slots |= zip(ids, taken, strict=True)

    def _make_room(self, given: Fields) -> None:
        """Have a free slot for each of these samples: a new one, or that of the oldest."""
        count, room = rows(given), rows(self.samples) if self.samples else 0
        if len(self.free) < count and room < self.limit:
            length = min(self.limit, max(room + count, 2 * room, FIRST_ROWS))
            longer = {name: value.new_zeros((length, *value.shape[1:])) for name, value in given.items()}
            for name, value in self.samples.items():
                longer[name][:room] = value
            self.samples = longer
            self.free = [*range(length - 1, room - 1, -1), *self.free]
        while len(self.free) < count:
            self.free.append(self.slots.pop(next(iter(self.slots))))
            self.forgotten += 1

    def known(self, ids: Sequence[Id]) -> list[int]:
        """Which of the ids, by their place, name a sample that waits."""
        return [place for place, each in enumerate(ids) if each in self.slots]

    def found(self, ids: Sequence[Id]) -> tuple[Inputs, Tensor]:
        """The samples of ids that are known, and what was predicted of them."""
        which = torch.tensor([self.slots[each] for each in ids], dtype=torch.int64)
        picked = {name: value[which] for name, value in self.samples.items()}
        return inputs(picked), picked[PREDICTED]

    def release(self, ids: Sequence[Id], unmatched: int) -> None:
        """The labels of these came; so many others were of no sample that waits."""
        self.free += [self.slots.pop(each) for each in ids]
        self.unmatched += unmatched

    # --- predictions of samples without ids

    def ask(self, x: Inputs, predicted: Tensor) -> None:
        """Keep what was predicted of samples without a label; what was said of the same inputs before stays."""
        for key, answer in zip(digests(x), predicted.tolist(), strict=True):
            self.asked.setdefault(key, answer)
        while len(self.asked) > self.limit:
            del self.asked[next(iter(self.asked))]

    def answered(self, x: Inputs, predicted: Tensor) -> tuple[Tensor, list[int]]:
        """What was predicted of each sample when it was first asked for, and what to :meth:`forget` of them then."""
        if not self.asked:
            return predicted, []
        keys, answers = digests(x), predicted.tolist()
        met = [key for key in keys if key in self.asked]
        return torch.tensor([self.asked.get(*each) for each in zip(keys, answers, strict=True)]), met

    def forget(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.asked.pop(key, None)

    # --- as part of a snapshot's file

    def tensors(self) -> Fields:
        """All that waits, in its order."""
        found: Fields = {}
        if self.slots:
            which = torch.tensor(list(self.slots.values()))
            found = under("late", {name: value[which] for name, value in self.samples.items()})
        if self.asked:
            found["asked"] = torch.tensor(list(self.asked.items()))  # [samples, 2]
        return found

    def description(self) -> dict[str, Any]:
        """The ids of :meth:`tensors`, and what was counted, as plain data."""
        return {"ids": list(self.slots), "forgotten": self.forgotten, "unmatched": self.unmatched}

    def load(self, tensors: Fields, description: dict[str, Any]) -> None:
        """The inverse of both, for one that is empty; where fewer may wait now, the oldest are forgotten."""
        ids, samples = description["ids"], within("late", tensors)
        asked = tensors.get("asked", torch.zeros(0, 2, dtype=torch.int64))
        fits = all(value.dim() and len(value) == len(ids) for value in samples.values())
        if not fits or bool(samples) != bool(ids) or as_ids(ids) != ids or len(set(ids)) < len(ids):
            raise SnclError(DAMAGED)
        if asked.dim() != 2 or asked.shape[1] != 2 or asked.dtype != torch.int64:
            raise SnclError(DAMAGED)
        if ids:
            predicted = samples.pop(PREDICTED)
            self.keep(ids, inputs(samples), predicted)
        self.asked = dict(asked[max(0, len(asked) - self.limit) :].tolist())
        self.forgotten += description["forgotten"]
        self.unmatched = description["unmatched"]


def digests(x: Inputs) -> list[int]:
    """A number for each sample that tells its inputs from all others, in every process the same."""
    fields = [value.detach().cpu().contiguous() for _, value in sorted(named(mapped(torch.as_tensor, x)).items())]
    parts = [value.reshape(len(value), -1).view(torch.uint8).numpy() for value in fields]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return [int.from_bytes(blake2b(row, digest_size=8).digest(), "little", signed=True) for row in whole]


def as_ids(ids: Any, count: int | None = None) -> list[Id]:
    """Ids as texts and whole numbers, which a file can hold."""
    plain = ids.tolist() if hasattr(ids, "tolist") else [ids] if isinstance(ids, (str, int)) else ids
    found: list[Id] = []
    for each in plain if isinstance(plain, (list, tuple, range)) else [plain]:
        if isinstance(each, bool) or not isinstance(each, (str, Integral)):
            raise SnclError(f"`ids` are texts or whole numbers, one for each sample, not {type(each).__name__}")
        found.append(each if isinstance(each, str) else int(each))
    if count is not None and len(found) != count:
        raise SnclError(f"`ids` are one for each sample: got {len(found)} for {count} samples")
    return found
