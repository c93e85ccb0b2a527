"""The encoding of a table, written once more with plain loops: the reference that tests compare with."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

Record = dict[str, Any]  # None: missing


class PlainEncoder:
    """``kinds`` says of each column: number, boolean, date or category. The first rows decide how wide it is."""

    def __init__(self, kinds: dict[str, str], first: list[Record]) -> None:
        self.kinds = kinds
        self.missing = {name: any(row[name] is None for row in first) for name in kinds}
        self.times = {
            name: any(
                row[name] is not None and (row[name].hour or row[name].minute or row[name].second) for row in first
            )
            for name, kind in kinds.items()
            if kind == "date"
        }
        self.slots = {
            name: min(max(16, 2 * len({row[name] for row in first})), 128)
            for name, kind in kinds.items()
            if kind == "category"
        }
        self.seen: dict[str, list[Any]] = {name: [] for name in kinds}

    def update(self, rows: list[Record]) -> None:
        for name, kind in self.kinds.items():
            for row in rows:
                value = row[name]
                if kind != "category":
                    self.seen[name] += [] if value is None else [days(value) if kind == "date" else float(value)]
                elif value not in self.seen[name]:
                    self.seen[name].append(value)

    def encode(self, rows: list[Record]) -> list[list[float]]:
        return [[number for name in self.kinds for number in self.cell(name, row[name])] for row in rows]

    def cell(self, name: str, value: Any) -> list[float]:
        kind = self.kinds[name]
        if kind == "category":
            return self.one_hot(self.seen[name], self.slots[name], value)
        seen = self.seen[name]
        mean = math.fsum(seen) / len(seen) if seen else 0.0
        indicator = [float(value is None)] if self.missing[name] else []
        if kind != "date":
            return [mean if value is None else float(value), *indicator]
        return [mean if value is None else days(value), *self.waves(value, self.times[name]), *indicator]

    @staticmethod
    def one_hot(seen: list[Any], slots: int, value: Any) -> list[float]:
        hot = [0.0] * slots
        if value in seen:
            hot[min(seen.index(value), slots - 1)] = 1.0
        elif len(seen) >= slots:
            hot[slots - 1] = 1.0
        return hot

    @staticmethod
    def waves(value: datetime | None, times: bool) -> list[float]:
        if value is None:
            return [0.0] * (6 if times else 4)
        year = datetime(value.year + 1, 1, 1) - datetime(value.year, 1, 1)
        turns = [(value - datetime(value.year, 1, 1)) / year, value.weekday() / 7]
        turns += [(value - datetime(value.year, value.month, value.day)).total_seconds() / 86400] if times else []
        return [wave(2 * math.pi * turn) for turn in turns for wave in (math.sin, math.cos)]


def days(value: datetime) -> float:
    return (value - datetime(1970, 1, 1)).total_seconds() / 86400
