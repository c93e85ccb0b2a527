"""How one column becomes numbers: read, learned from as the stream goes on, and encoded."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from sncl.tables.columns import Codes, Column, Floats, distinct, is_missing, numbers_of
from sncl.tables.dates import ORDERS, DateOrder, Dates, cycles, dates_of, days_since_1970, has_times
from sncl.tables.kinds import ColumnKind

Read = TypeVar("Read")

FEWEST_SLOTS, MOST_SLOTS = 16, 128


class Coder(ABC, Generic[Read]):
    """One column of a table. What :meth:`read` returns goes into :meth:`learn` and :meth:`encode`."""

    name: str

    @property
    @abstractmethod
    def kind(self) -> ColumnKind: ...

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of the encoded columns."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many columns there are when encoded."""

    @property
    @abstractmethod
    def binary(self) -> list[bool]:
        """Which encoded columns are 0 or 1 by their nature."""

    @abstractmethod
    def read(self, column: Column) -> Read:
        """The values, checked; nothing changes."""

    @abstractmethod
    def learn(self, values: Read) -> None: ...

    @abstractmethod
    def encode(self, values: Read, out: Floats) -> None:
        """Write the encoded columns. out [rows, width]"""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...


@dataclass
class RunningMean:
    """The mean of all values that were there so far; 0 before the first."""

    count: int = 0
    mean: float = 0.0

    def learn(self, numbers: Floats) -> None:
        if len(numbers) == 1:
            self._include(numbers.item(), 1 - math.isnan(numbers.item()))
            return
        missing = np.isnan(numbers)
        present = numbers[~missing] if missing.any() else numbers
        if len(present):
            self._include(float(present.mean()), len(present))

    def _include(self, mean: float, count: int) -> None:
        """So many more numbers, with this mean."""
        if count:
            self.count += count
            self.mean += (mean - self.mean) * (count / self.count)
            if not math.isfinite(self.mean):  # values near the largest number there is
                self.mean = 0.0

    def fill(self, numbers: Floats) -> Floats:
        return np.where(np.isnan(numbers), self.mean, numbers)

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean}


class RunningMeans:
    """Means of columns side by side, as long as no number is missing; :meth:`settle` tells them what was learned."""

    def __init__(self, columns: Sequence[RunningMean]) -> None:
        self.columns = columns
        counts = [each.count for each in columns]
        self.counts = counts[0] if len(set(counts)) == 1 else np.array(counts)  # one number for all is divided quicker
        self.means = np.array([each.mean for each in columns], dtype=np.float64)

    def learn(self, matrix: Floats) -> None:
        """The same for all columns as theirs for one. [rows, columns]"""
        rows, means = len(matrix), self.means
        self.counts = self.counts + rows
        found = matrix[0] if rows == 1 else np.ascontiguousarray(matrix.T).mean(1)
        means += (found - means) * (rows / self.counts)
        if not math.isfinite(means.dot(means)):  # one is not finite, or squares overflow
            means[~np.isfinite(means)] = 0.0

    def settle(self) -> None:
        counts = np.broadcast_to(self.counts, self.means.shape)
        for column, count, mean in zip(self.columns, counts.tolist(), self.means.tolist(), strict=True):
            column.count, column.mean = count, mean


@dataclass
class NumberCoder(Coder[Floats]):
    """Numbers as they are, missing ones as the mean so far; truth values as 0 and 1. ``indicator``: 1 where missing."""

    name: str
    boolean: bool = False
    indicator: bool = False
    running: RunningMean = field(default_factory=RunningMean)

    @property
    def kind(self) -> ColumnKind:
        return "boolean" if self.boolean else "number"

    @property
    def names(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.indicator else [])]

    @property
    def width(self) -> int:
        return 1 + self.indicator

    @property
    def binary(self) -> list[bool]:
        return [self.boolean, *([True] if self.indicator else [])]

    def read(self, column: Column) -> Floats:
        return numbers_of(column, self.name)

    def learn(self, values: Floats) -> None:
        self.running.learn(values)

    def encode(self, values: Floats, out: Floats) -> None:
        out[:, 0] = self.running.fill(values)
        if self.indicator:
            out[:, 1] = np.isnan(values)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "indicator": self.indicator, **self.running.to_json()}


@dataclass
class DateCoder(Coder[Dates]):
    """Days since 1970, sine and cosine of the time of year, the weekday and, with ``times``, the time of day."""

    name: str
    order: DateOrder = "ymd"
    times: bool = False
    indicator: bool = False
    running: RunningMean = field(default_factory=RunningMean)

    @property
    def kind(self) -> ColumnKind:
        return "date"

    @property
    def names(self) -> list[str]:
        parts = ["year", "week", *(["day"] if self.times else [])]
        waves = [f"{self.name} {wave} of {part}" for part in parts for wave in ("sine", "cosine")]
        return [f"{self.name} days", *waves, *([f"{self.name} missing"] if self.indicator else [])]

    @property
    def width(self) -> int:
        return 5 + 2 * self.times + self.indicator

    @property
    def binary(self) -> list[bool]:
        return [False] * (self.width - self.indicator) + [True] * self.indicator

    def read(self, column: Column) -> Dates:
        return dates_of(column, self.order, self.name)

    def learn(self, values: Dates) -> None:
        self.running.learn(days_since_1970(values))

    def encode(self, values: Dates, out: Floats) -> None:
        out[:, 0] = self.running.fill(days_since_1970(values))
        waves = cycles(values, self.times)
        out[:, 1 : 1 + waves.shape[1]] = waves
        if self.indicator:
            out[:, -1] = np.isnat(values)

    def to_json(self) -> dict[str, Any]:
        facts = {"name": self.name, "kind": self.kind, "order": self.order, "times": self.times}
        return facts | {"indicator": self.indicator, **self.running.to_json()}


class Categories(NamedTuple):
    """Different values, None for missing, in order of first occurrence, and the number of each row's."""

    values: list[str | None]
    codes: Codes


@dataclass
class CategoryCoder(Coder[Categories]):
    """One of ``slots`` columns is 1. New categories take free slots; once all are taken, others share the last."""

    name: str
    slots: int = FEWEST_SLOTS
    known: dict[str | None, int] = field(default_factory=dict)

    @property
    def kind(self) -> ColumnKind:
        return "category"

    @property
    def names(self) -> list[str]:
        taken = {slot: "missing" if value is None else f"= {value}" for value, slot in self.known.items()}
        return [f"{self.name} {taken.get(slot, f'(free {slot + 1})')}" for slot in range(self.slots)]

    @property
    def width(self) -> int:
        return self.slots

    @property
    def binary(self) -> list[bool]:
        return [True] * self.slots

    def read(self, column: Column) -> Categories:
        return Categories(*distinct(column))

    def learn(self, values: Categories) -> None:
        for value in values.values:
            if value not in self.known and len(self.known) < self.slots:
                self.known[value] = len(self.known)

    def encode(self, values: Categories, out: Floats) -> None:
        """A category that was never learned is zeros, as long as there are free slots."""
        other = self.slots - 1 if len(self.known) == self.slots else -1
        slots = np.array([self.known.get(value, other) for value in values.values], dtype=np.int64)[values.codes]
        out[:] = 0.0
        rows = np.flatnonzero(slots >= 0)
        out[rows, slots[rows]] = 1.0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "slots": self.slots, "known": list(self.known)}


def coder_for(name: str, kind: ColumnKind, order: str, column: Column) -> NumberCoder | DateCoder | CategoryCoder:
    """A coder of a column of this kind, as wide as these rows ask for; it has learned nothing yet."""
    indicator = bool(is_missing(column).any())
    if kind == "date":
        found = DateCoder(name, order=checked_order(order), indicator=indicator)
        found.times = has_times(found.read(column))
        return found
    if kind == "category":
        seen = len(distinct(column)[0])
        return CategoryCoder(name, slots=min(max(FEWEST_SLOTS, 2 * seen), MOST_SLOTS))
    return NumberCoder(name, boolean=kind == "boolean", indicator=indicator)


def coder_from(facts: dict[str, Any]) -> NumberCoder | DateCoder | CategoryCoder:
    """The inverse of a coder's ``to_json``."""
    name, kind = str(facts["name"]), facts["kind"]
    if kind == "category":
        known = [None if value is None else str(value) for value in facts["known"]]
        return CategoryCoder(name, int(facts["slots"]), {value: slot for slot, value in enumerate(known)})
    running = RunningMean(int(facts["count"]), float(facts["mean"]))
    if kind == "date":
        order = checked_order(facts["order"])
        return DateCoder(name, order, bool(facts["times"]), bool(facts["indicator"]), running)
    if kind not in ("number", "boolean"):
        raise ValueError(f"there is no kind of column {kind!r}")
    return NumberCoder(name, kind == "boolean", bool(facts["indicator"]), running)


def checked_order(order: str) -> DateOrder:
    """One of the orders that dates are written in."""
    for each in ORDERS:
        if each == order:
            return each
    raise ValueError(f"there is no order of dates {order!r}")
