"""Which kind a column is: a number, a truth value, a date, a category, or one that is left out."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np

from sncl.errors import SnclError
from sncl.tables.columns import TRUTHS, Codes, Column, distinct, is_missing, is_number, not_a_number, numbers_of
from sncl.tables.dates import date_order

ColumnKind = Literal["number", "boolean", "date", "category", "ignored"]

FEWEST_IDS = 20  # rows; all different values in fewer are no sign of an id
MOSTLY_DIFFERENT = 0.9  # of the texts of an id
MOST_CATEGORIES = 100  # in a column; more are names or free text
ID_NAME = re.compile(
    r"(?:.*[\W_])?(?:id|ids|uuid|guid|index|idx|rowid|key)|unnamed: 0|__index_level_\d+__", re.IGNORECASE
)
CAMEL_ID = re.compile(r".*[a-z](?:Id|ID)")


class Decided(NamedTuple):
    """The kind of a column, how it writes dates, and a line for the user, if there is something to say."""

    kind: ColumnKind
    order: str = "ymd"
    note: str = ""


def decide(name: str, column: Column, named: bool) -> Decided:
    """The kind of a column by its values; ``named``: by its name, too. Ids are left out."""
    if column.dtype.kind == "M":
        return Decided("date", note=f"{name!r} holds dates")
    if column.dtype.kind == "b":
        return Decided("boolean")
    if column.dtype.kind in "iuf":
        if named and (what := _counts(name, column)):
            return Decided("ignored", note=_left_out(name, what))
        return Decided("number")
    return _of_texts(name, column)


def _of_texts(name: str, column: Column) -> Decided:
    values, codes = distinct(column)
    texts = [value for value in values if value is not None]
    if not texts:
        return Decided("category")
    if all(text.lower() in TRUTHS for text in texts):
        return Decided("boolean")
    if _are_numbers(name, values, codes):
        return Decided("number")
    if (order := date_order(texts)) is not None:
        how = {"ymd": "", "dmy": ", the day first", "mdy": ", the month first"}[order]
        return Decided("date", order, f"{name!r} holds dates{how}")
    rows = int((~is_missing(column)).sum())
    if len(texts) > max(FEWEST_IDS, MOSTLY_DIFFERENT * rows):
        return Decided("ignored", note=_left_out(name, "its texts are nearly all different"))
    if len(texts) > MOST_CATEGORIES:
        return Decided("ignored", note=_left_out(name, f"it holds {len(texts)} different texts"))
    return Decided("category")


def _are_numbers(name: str, values: list[str | None], codes: Codes) -> bool:
    """Whether texts are numbers; most of them and not all are a typing error."""
    counts = np.bincount(codes, minlength=len(values))
    numeric = np.array([value is not None and is_number(value) for value in values])
    present = np.array([value is not None for value in values])
    if not numeric.any() or numeric.sum() == present.sum():
        return bool(numeric.any())
    if counts[numeric].sum() <= counts[present].sum() / 2:
        return False
    wrong = next(place for place in np.flatnonzero(present & ~numeric).tolist())
    raise not_a_number(name, str(values[wrong]), int((codes == wrong).argmax()))


def _counts(name: str, column: Column) -> str:
    """Why a column of numbers is only an id; nothing if it is none."""
    if len(column) < FEWEST_IDS or is_missing(column).any():
        return ""
    numbers = numbers_of(column, name)
    if (numbers != np.round(numbers)).any():
        return ""
    if numbers[0] in (0, 1) and (np.diff(numbers) == 1).all():
        return "it only counts the rows"
    like_id = ID_NAME.fullmatch(name.strip()) or CAMEL_ID.fullmatch(name.strip())
    return "its numbers are all different and it is called like an id" if like_id and _all_different(column) else ""


def _all_different(column: Column) -> bool:
    return len(np.unique(column)) == len(column)


def _left_out(name: str, why: str) -> str:
    return f"{name!r} is left out: {why} (`numbers` or `categories` keeps it, `ignore` says so yourself)"


def check_named(given: dict[str, tuple[str, ...]], known: list[str]) -> None:
    """Refuse a column that is not there, or that is named for two kinds."""
    seen: dict[str, str] = {}
    for role, names in given.items():
        for name in names:
            if name not in known:
                has = ", ".join(known[:20])
                raise SnclError(f"`{role}`: there is no column {name!r}; there are {has}")
            if seen.setdefault(name, role) != role:
                raise SnclError(f"the column {name!r} is named in `{seen[name]}` and in `{role}`; name it once")
