"""Columns of a table by name, and what their values are: missing, numbers, texts, dates.

A column is an array: numbers (NaN is missing), truth values, texts, dates (NaT is missing), or objects that are texts,
truth values or None (missing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.errors import BadKind, SnclError

Column = NDArray[Any]
Columns = dict[str, Column]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]

INEXACT = 2**53  # from here on, float64 has no odd numbers
LONGEST_TEXT = 1000  # characters of a label or of a cell of a table
TRUTHS = {"true": 1.0, "false": 0.0}
DATES = (date, datetime, np.datetime64)


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few of many names."""
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def is_number(text: str) -> bool:
    """Whether a string is a finite number; Python would also read 1_000."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def is_missing(column: Column) -> Flags:
    """Which values are missing; a text that says nothing is. [rows]"""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "M":
        return np.isnat(column)
    if column.dtype.kind == "O":
        absent = (value is None or (isinstance(value, str) and not value.strip()) for value in column.tolist())
        return np.fromiter(absent, dtype=np.bool_, count=len(column))
    if column.dtype.kind == "U":
        blank: Flags = np.char.str_len(np.char.strip(column)) == 0
        return blank
    return np.zeros(len(column), dtype=np.bool_)


def settled(values: Any, name: str) -> Column:
    """Values of any kind as a column: objects become numbers, truth values, dates or texts, whichever they all are."""
    column = np.asarray(values)
    if column.ndim != 1:
        raise SnclError(f"the column {name!r} holds one value a row, not an array of shape {list(column.shape)}")
    if column.dtype.kind in "biufUM":
        return column
    if column.dtype.kind == "S":
        return settled([value.decode("utf-8", "replace") for value in column.tolist()], name)
    if column.dtype.kind != "O":
        raise SnclError(f"the column {name!r} holds {column.dtype}; columns are numbers, texts, truth values or dates")
    return _of_objects(column, name)


def _of_objects(column: Column, name: str) -> Column:
    objects = list(column)
    missing = [is_nothing(value) for value in objects]
    kinds = {type(value) for value, absent in zip(objects, missing, strict=True) if not absent}
    if kinds and all(issubclass(kind, bool | np.bool_) for kind in kinds):
        truths = _with_none(map(bool, objects), missing) if any(missing) else np.array(objects, dtype=np.bool_)
        return truths
    if kinds and all(issubclass(kind, Real | Decimal) for kind in kinds):
        return np.array([math.nan if absent else value for value, absent in zip(objects, missing, strict=True)], float)
    if kinds and all(issubclass(kind, DATES) for kind in kinds):
        return _of_dates(objects, missing, name)
    texts = (_text(value, name) for value, absent in zip(objects, missing, strict=True) if not absent)
    return _with_none(_spread(texts, missing), missing)


def is_nothing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN, NaT or pandas' NA, which is not equal to itself."""
    if value is None:
        return True
    if isinstance(value, str | bool):
        return False
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA says that it does not know
        return type(value).__name__ == "NAType"


def _spread(values: Iterable[Any], missing: Sequence[bool]) -> Iterable[Any]:
    """Values with None where they are missing."""
    present = iter(values)
    return (None if absent else next(present) for absent in missing)


def _with_none(values: Iterable[Any], missing: Sequence[bool]) -> Column:
    column = np.empty(len(missing), dtype=object)
    column[:] = [None if absent else value for value, absent in zip(values, missing, strict=True)]
    return column


def _of_dates(objects: list[Any], missing: Sequence[bool], name: str) -> Column:
    found = np.full(len(objects), "NaT", dtype="datetime64[us]")
    for place, (value, absent) in enumerate(zip(objects, missing, strict=True)):
        if not absent:
            try:
                aware = isinstance(value, datetime) and value.utcoffset() is not None
                plain = (value - value.utcoffset()).replace(tzinfo=None) if aware else value
                found[place] = np.datetime64(plain, "us")
            except (ValueError, OverflowError) as error:
                raise SnclError(f"the column {name!r} holds a date that cannot be read ({error})") from error
    return found


def _text(value: Any, name: str) -> str:
    """One value as the name of a category; whole numbers without a decimal point."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, Real):
        return number_text(float(value))
    if isinstance(value, DATES):
        return str(value)
    raise BadKind(
        f"the column {name!r} holds a {type(value).__name__}; the argument must be a string, a number, a truth value "
        "or a date"
    )


def number_text(number: float) -> str:
    """A number as the name of a category: 3 and 3.0 are one."""
    return str(int(number)) if number.is_integer() and abs(number) < INEXACT else repr(number)


def distinct(column: Column) -> tuple[list[str | None], Codes]:
    """The different values as texts, None where they are missing, in order of first occurrence; and each row's."""
    missing = is_missing(column)
    values = column[~missing]
    if values.dtype.kind == "O":
        values = np.array([text_of(value) for value in values.tolist()], dtype=np.str_)
    elif values.dtype.kind == "U":
        values = np.char.strip(values)
    found, first, codes = np.unique(values, return_index=True, return_inverse=True)
    order = first.argsort(kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    names: list[str | None] = [text_of(value) for value in found[order].tolist()]
    every = np.full(len(column), len(names), dtype=np.int64)
    every[~missing] = rank[codes.reshape(-1)]
    if missing.any():
        names.append(None)
        return in_order(names, every)
    return names, every


def text_of(value: Any) -> str:
    """A plain value as text."""
    return number_text(value) if isinstance(value, float) else str(value).strip()


def in_order(names: list[str | None], codes: Codes) -> tuple[list[str | None], Codes]:
    """Names numbered by first occurrence among the codes."""
    used, first = np.unique(codes, return_index=True)
    order = used[first.argsort(kind="stable")]
    rank = np.zeros(len(names), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return [names[place] for place in order.tolist()], rank[codes]


def numbers_of(column: Column, name: str) -> Floats:
    """The column as numbers, NaN where they are missing; texts are read as such. Infinity is refused. [rows]"""
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
    elif column.dtype.kind == "M":
        raise SnclError(f"the column {name!r} holds dates, not numbers")
    else:
        texts, codes = distinct(column)
        values = [math.nan if text is None else _number(text) for text in texts]
        if None in values:
            place = values.index(None)
            raise not_a_number(name, str(texts[place]), int((codes == place).argmax()))
        numbers = np.array(values, dtype=np.float64)[codes] if values else np.zeros(0)
    infinite = np.isinf(numbers)
    if infinite.any():
        raise SnclError(
            f"the column {name!r} holds {numbers[infinite][0]} in row {int(infinite.argmax()) + 1}: neither infinity "
            "nor a value that large is a number to learn from"
        )
    return numbers


def _number(text: str) -> float | None:
    if text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    return float(text) if is_number(text) else None


def not_a_number(name: str, text: str, row: int) -> SnclError:
    return SnclError(
        f"the column {name!r} holds numbers, but {text!r} in row {row + 1}; put it right, leave it empty, or name the "
        "column in `categories`"
    )
