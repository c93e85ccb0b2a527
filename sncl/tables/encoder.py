"""A table as numbers: learned from the stream, the same for training, prediction and every later use.

Numbers stay as they are; a missing one becomes the mean of those seen so far. Truth values become 0 and 1, dates a few
numbers, and texts one column of 0 and 1 for each category, with spare ones for categories that come later. So the
width is known from the first rows on, and no row is encoded with what came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from sncl.errors import SnclError
from sncl.tables.coders import Coder, NumberCoder, RunningMeans, coder_for, coder_from
from sncl.tables.columns import Columns, Flags, Floats, settled, some
from sncl.tables.kinds import ColumnKind, Decided, check_named, decide

VERSION = 1  # of what to_json returns


class TableEncoder:
    """Columns by name to a float64 matrix of a fixed width, without NaN."""

    def __init__(self, coders: Sequence[Coder[Any]], columns: dict[str, ColumnKind], notes: Iterable[str] = ()) -> None:
        self.coders = list(coders)
        self.columns = columns
        self.notes = list(notes)
        #: whether every column that is used is one number
        self.plain = all(isinstance(coder, NumberCoder) and not coder.indicator for coder in self.coders)
        #: whether the encoded columns are all columns as they are, where no value is missing
        self.whole = self.plain and len(self.coders) == len(columns)
        self._side_by_side: RunningMeans | None = None  # while rows come without a gap

    @classmethod
    def made_for(
        cls,
        columns: Columns,
        *,
        ignore: Sequence[str] = (),
        categories: Sequence[str] = (),
        numbers: Sequence[str] = (),
        named: bool = True,
    ) -> Self:
        """An encoder for tables like these rows. It decides how wide columns are, and has learned nothing yet.

        ``ignore``, ``categories`` and ``numbers`` name columns whose kind is not left to it. Without ``named`` columns
        have no names of their own, and numbers that look like an id are kept.
        """
        kinds = decide_kinds(columns, ignore, categories, numbers, named)
        return cls.of_kinds(columns, kinds)

    @classmethod
    def of_kinds(cls, columns: Columns, kinds: dict[str, Decided]) -> Self:
        """An encoder whose columns have these kinds, as wide as these rows ask for."""
        used = {name: found for name, found in kinds.items() if found.kind != "ignored"}
        coders = [
            coder_for(name, found.kind, found.order, settled(columns[name], name)) for name, found in used.items()
        ]
        return cls(coders, {name: found.kind for name, found in kinds.items()}, notes_on(kinds))

    @property
    def names(self) -> list[str]:
        """What the encoded columns are called."""
        return [name for coder in self.coders for name in coder.names]

    @property
    def width(self) -> int:
        return sum(coder.width for coder in self.coders)

    @property
    def binary(self) -> Flags:
        """Which encoded columns are 0 or 1 by their nature, and need no scale. [width]"""
        return np.array([flag for coder in self.coders for flag in coder.binary], dtype=np.bool_)

    def _settle(self) -> None:
        """Let every column know its mean."""
        if self._side_by_side is not None:
            self._side_by_side.settle()
            self._side_by_side = None

    def check(self, columns: Columns) -> None:
        """Refuse values that do not fit the kind of their column; nothing is learned."""
        self._read(columns)

    def update(self, columns: Columns) -> None:
        """Learn from rows: new categories take free slots, means follow. If a value is refused, nothing changes."""
        read = self._read(columns)
        self._settle()
        with np.errstate(over="ignore"):
            for coder, values in read:
                coder.learn(values)

    @np.errstate(over="ignore", invalid="ignore")
    def update_numbers(self, matrix: Floats) -> None:
        """Learn from a matrix of all columns, each of which is a number; none may be missing. [rows, columns]"""
        if self._side_by_side is None:
            self._side_by_side = RunningMeans([each.running for each in self.coders if isinstance(each, NumberCoder)])
        self._side_by_side.learn(matrix)

    def encode(self, columns: Columns) -> Floats:
        """The rows as numbers, by what was learned so far. [rows, width]"""
        parts = self._read(columns)
        self._settle()
        rows = len(next(iter(columns.values()))) if columns else 0
        out = np.empty((rows, self.width), dtype=np.float64)
        start = 0
        for coder, values in parts:
            coder.encode(values, out[:, start : start + coder.width])
            start += coder.width
        return out

    def _read(self, columns: Columns) -> list[tuple[Coder[Any], Any]]:
        absent = [coder.name for coder in self.coders if coder.name not in columns]
        if absent:
            raise SnclError(f"the table has no column {some(map(repr, absent))}; it has {some(columns, 20) or 'none'}")
        return [(coder, coder.read(settled(columns[coder.name], coder.name))) for coder in self.coders]

    def to_json(self) -> dict[str, Any]:
        """Everything that decides what comes next, as plain data."""
        self._settle()
        coders = {coder.name: coder.to_json() for coder in self.coders}
        columns = [coders.get(name, {"name": name, "kind": kind}) for name, kind in self.columns.items()]
        return {"version": VERSION, "columns": columns}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        try:
            if state["version"] != VERSION:
                raise ValueError(f"its version is {state['version']}, and this sncl reads {VERSION}")
            coders = [coder_from(facts) for facts in state["columns"] if facts["kind"] != "ignored"]
            return cls(coders, {str(facts["name"]): facts["kind"] for facts in state["columns"]})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnclError(f"what is known of the table's columns cannot be read ({error})") from error

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {kind}" for name, kind in list(self.columns.items())[:8])
        more = ", ..." if len(self.columns) > 8 else ""
        return f"TableEncoder({len(self.columns)} columns to {self.width} numbers; {kinds}{more})"


def decide_kinds(
    columns: Columns,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    numbers: Sequence[str] = (),
    named: bool = True,
) -> dict[str, Decided]:
    """The kind of each column. Ids are left out, unless nothing else is there."""
    given = {"ignore": tuple(ignore), "categories": tuple(categories), "numbers": tuple(numbers)}
    check_named(given, list(columns))
    kinds = {}
    for name, values in columns.items():
        forced = next((role for role, names in given.items() if name in names), None)
        if forced is not None:
            named_kinds: dict[str, ColumnKind] = {"ignore": "ignored", "categories": "category", "numbers": "number"}
            kinds[name] = Decided(named_kinds[forced])
        else:
            kinds[name] = decide(name, settled(values, name), named)
    if all(found.kind == "ignored" for found in kinds.values()):
        again = [name for name in kinds if name not in given["ignore"]]
        if not again:
            raise SnclError("there is no column left to learn from; `ignore` fewer")
        for name in again:
            texts = settled(columns[name], name).dtype.kind in "UO"
            kinds[name] = Decided("category" if texts else "number")
    return kinds


def notes_on(kinds: dict[str, Decided]) -> list[str]:
    """What a user should know of the columns, one line each."""
    return [found.note for found in kinds.values() if found.note]
