"""Dates and times in texts, and as numbers: days since 1970, and where in the year, the week and the day they lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.tables.columns import Column, Flags, Floats, distinct, is_missing

DateOrder = Literal["ymd", "dmy", "mdy"]
Dates = NDArray[np.datetime64[Any]]

ORDERS: tuple[DateOrder, ...] = ("ymd", "dmy", "mdy")  # of those that fit all texts, the first
DATE = re.compile(
    r"(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{1,2})([-/.])(\d{1,2})\6(\d{4}))"
    r"(?:(?:T|\s+)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*([AaPp][Mm])?)?"
    r"\s*(Z|UTC|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
YEARS = (1, 9999)
DAY = np.timedelta64(1, "D")
MONDAY = 3  # 1970 began on a Thursday


def parse_date(text: str, order: DateOrder) -> datetime | None:
    """The moment that a text names, in UTC where it says how far it is from there; None if it names none."""
    found = DATE.fullmatch(text.strip())
    if found is None:
        return None
    if found[1] is not None:
        if order != "ymd":
            return None
        year, month, day = int(found[1]), int(found[3]), int(found[4])
    else:
        if order == "ymd":
            return None
        first, second, year = int(found[5]), int(found[7]), int(found[8])
        day, month = (first, second) if order == "dmy" else (second, first)
    hour, minute, second = (int(found[part] or 0) for part in (9, 10, 11))
    if found[13] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[13].lower() == "pm" else 0)
    micro = int((found[12] or "0")[:6].ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, micro) - _offset(found[14])
    except (ValueError, OverflowError):
        return None


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in ("Z", "UTC"):
        return timedelta(0)
    digits = zone[1:].replace(":", "")
    found = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -found if zone[0] == "-" else found


def date_order(texts: Sequence[str]) -> DateOrder | None:
    """How all of these texts write dates; None if they are not all dates. Of 1/2/2024 the first is the day."""
    if not texts or DATE.fullmatch(texts[0].strip()) is None:
        return None
    for order in ORDERS:
        if all(parse_date(text, order) is not None for text in texts):
            return order
    return None


def dates_of(column: Column, order: DateOrder, name: str) -> Dates:
    """The column as moments, NaT where they are missing. [rows]"""
    if column.dtype.kind == "M":
        return _in_years(column, name)
    if column.dtype.kind in "biuf":
        if is_missing(column).all():
            return np.full(len(column), "NaT", dtype="datetime64[us]")
        raise SnclError(f"the column {name!r} holds dates so far, and numbers here; give dates such as 2024-12-31")
    texts, codes = distinct(column)
    moments = [None if text is None else parse_date(text, order) for text in texts]
    for place, (text, moment) in enumerate(zip(texts, moments, strict=True)):
        if text is not None and moment is None:
            row = int((codes == place).argmax())
            raise SnclError(
                f"the column {name!r} holds dates, but {text!r} in row {row + 1}; put it right, leave it empty, or "
                "name the column in `categories`"
            )
    return np.array(moments, dtype="datetime64[us]")[codes] if texts else np.zeros(0, dtype="datetime64[us]")


def _in_years(column: Column, name: str) -> Dates:
    """Moments as microseconds; years that a calendar of four digits does not have are refused."""
    years = column.astype("datetime64[Y]").astype(np.int64) + 1970
    wrong = ~np.isnat(column) & ((years < YEARS[0]) | (years > YEARS[1]))
    if wrong.any():
        row = int(wrong.argmax())
        raise SnclError(f"the column {name!r} holds the year {years[row]} in row {row + 1}; years are 1 to 9999")
    moments: Dates = column.astype("datetime64[us]")
    return moments


def has_times(moments: Dates) -> bool:
    """Whether any moment is not midnight."""
    known = moments[~np.isnat(moments)]
    return bool((known != known.astype("datetime64[D]")).any())


def days_since_1970(moments: Dates) -> Floats:
    """Days, with a fraction for the time of day; NaN for NaT. [rows]"""
    days: Floats = (moments - np.datetime64(0, "us")) / DAY
    return days


def cycles(moments: Dates, times: bool) -> Floats:
    """Sine and cosine of the time of year, of the day of the week and, with ``times``, of the time of day.

    Zeros where the moment is missing. [rows, 4 or 6]
    """
    missing: Flags = np.isnat(moments)
    known = np.where(missing, np.datetime64(0, "us"), moments)
    year = known.astype("datetime64[Y]")
    begin, end = (each.astype("datetime64[us]") for each in (year, year + np.timedelta64(1, "Y")))
    day = known.astype("datetime64[D]")
    parts = [
        (known - begin) / (end - begin),
        ((day.astype(np.int64) + MONDAY) % 7) / 7,
        *([(known - day) / DAY] if times else []),
    ]
    angles = 2 * np.pi * np.stack(parts, axis=1)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(moments), 2 * len(parts))
    found: Floats = np.where(missing[:, None], 0.0, waves)
    return found
