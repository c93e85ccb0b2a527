"""The cells of a column in a text file: numbers in any usual spelling, else texts, and those that are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sncl.errors import SnclError
from sncl.tables.columns import INEXACT, LONGEST_TEXT, Column
from sncl.tensors.room import require_memory

MISSING_VALUES = frozenset(("", "na", "n/a", "nan", "null", "?"))
WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?(,\d+)?([eE][+-]?\d+)?", re.ASCII)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})*(\.\d+)?", re.ASCII)
SURELY_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3}){2,}(\.\d+)?|[+-]?\d{1,3},\d{3}\.\d+", re.ASCII)
INT64 = np.iinfo(np.int64)
BYTES_A_CHARACTER = 12  # of an array of strings: four, and two copies on the way
SMALLER = "remove columns or rows"
Spelling = Literal["point", "comma", "thousands"]


class TypedCells(NamedTuple):
    """A column, and how its numbers are written."""

    column: Column
    style: Spelling = "point"


def typed_cells(path: Path, name: str, values: Sequence[str], separator: str) -> TypedCells:
    """Numbers if all of them are, else texts. Whole numbers that float64 would merge stay whole."""
    texts = [value.strip() for value in values]
    missing = [text.lower() in MISSING_VALUES for text in texts]
    known = [text for text, absent in zip(texts, missing, strict=True) if not absent]
    if not known:
        return TypedCells(np.full(len(texts), np.nan))
    if any("_" in text for text in known):  # 1_000 is no number, though Python reads it
        return TypedCells(texts_with_none(path, name, texts, missing))
    style, plain = spelled(known, separator)
    try:
        numbers = np.array([float(text) for text in plain], dtype=np.float64)
    except ValueError:
        return TypedCells(texts_with_none(path, name, texts, missing))
    if not np.isfinite(numbers).all():
        place = int((~np.isfinite(numbers)).argmax())
        row = [number for number, absent in enumerate(missing, start=1) if not absent][place]
        raise SnclError(
            f"{path}: row {row} holds {known[place]!r} in the column {name!r}, which is no finite number; put it right "
            "or leave it empty"
        )
    if np.abs(numbers).max() < INEXACT or not all(map(WHOLE.fullmatch, plain)):
        return TypedCells(_spread(numbers, missing), style)
    refuse_long(path, name, texts)
    whole = [int(text.partition(".")[0]) for text in plain]
    if any(missing) or not all(INT64.min <= value <= INT64.max for value in whole):
        left = iter(map(str, whole))
        return TypedCells(texts_with_none(path, name, ["" if absent else next(left) for absent in missing], missing))
    return TypedCells(np.array(whole, dtype=np.int64), style)


def spelled(texts: Sequence[str], separator: str) -> tuple[Spelling, Sequence[str]]:
    """How numbers are written, and the same as Python writes them; texts that are no numbers stay as they are.

    A comma between fields leaves only separators of thousands for commas inside them.
    """
    if not any("," in text for text in texts):
        return "point", texts
    grouped = all(map(THOUSANDS.fullmatch, texts))
    if grouped and (separator == "," or any(map(SURELY_THOUSANDS.fullmatch, texts))):
        return "thousands", [text.replace(",", "") for text in texts]
    if separator != "," and all(map(DECIMAL_COMMA.fullmatch, texts)):
        return "comma", [text.replace(".", "").replace(",", ".") for text in texts]
    return "point", texts


def _spread(numbers: Column, missing: Sequence[bool]) -> Column:
    if not any(missing):
        return numbers
    column = np.full(len(missing), np.nan)
    column[~np.array(missing)] = numbers
    return column


def texts_with_none(path: Path, name: str, texts: list[str], missing: Sequence[bool]) -> Column:
    """Texts as an array, in which every one takes the room of the longest; as objects where some are missing."""
    longest = refuse_long(path, name, texts)
    require_memory(BYTES_A_CHARACTER * longest * len(texts), f"{path}: the column {name!r}", SMALLER)
    if not any(missing):
        return np.array(texts, dtype=np.str_)
    column = np.empty(len(texts), dtype=object)
    column[:] = [None if absent else text for text, absent in zip(texts, missing, strict=True)]
    return column


def refuse_long(path: Path, name: str, texts: Sequence[str]) -> int:
    """The length of the longest text."""
    lengths = [len(text) for text in texts]
    longest = max(lengths, default=0)
    if longest > LONGEST_TEXT:
        row = lengths.index(longest) + 1
        raise SnclError(
            f"{path}: row {row} has {longest} characters in the column {name!r}, and at most {LONGEST_TEXT} are read; "
            "shorten it or remove the column"
        )
    return longest
