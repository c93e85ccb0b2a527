"""What a reader of the user's data returns first: labels and domains as strings, and how to load the inputs.

Which samples are learned and which are tested may follow from the labels, so labels come first and inputs afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.raw import RawTable
from sncl.tables.columns import INEXACT, LONGEST_TEXT, is_number

Strings = NDArray[np.str_]

LAST_CHARACTER, SURROGATES = 0x10FFFF, 0x800  # of Unicode; surrogates begin at 0xD800


class Annotations(NamedTuple):
    """The label of each sample and, where there are domains, the domain of each."""

    labels: Strings
    domains: Strings | None


class Inputs(NamedTuple):
    """The inputs of training and test samples, and the columns of a table."""

    train: Tensor
    test: Tensor
    table: RawTable | None = None


@dataclass(frozen=True)
class Listing:
    """The annotations of training and test samples, and how to load their inputs.

    ``load`` takes the indices of the samples to train on and of those to test on; the latter count in the test set or,
    where there is none, in the training set. ``target`` and ``domain`` are the columns or arrays that were used.
    """

    train: Annotations
    test: Annotations | None
    load: Callable[[Tensor, Tensor], Inputs]
    target: str | None = None
    domain: str | None = None
    notes: list[str] = field(default_factory=list)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts the numbers in strings by their value: a2 before a10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part]


def sorted_names(names: Iterable[str]) -> list[str]:
    """Different names: numbers by value, others by :func:`natural_key`."""
    different = set(names)
    if all(map(is_number, different)):
        return sorted(different, key=lambda name: (Decimal(name), name))  # float would merge some
    return sorted(different, key=natural_key)


def as_strings(values: NDArray[Any], what: str) -> Strings:
    """Labels or domains as strings: whole numbers, truth values or strings, one for each sample."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise SnclError(f"{what} hold one label a row, not an array of shape {list(values.shape)}")
    if values.dtype.kind == "f":
        wrong = ~np.isfinite(values) | (values != np.round(values))
        if wrong.any():
            row = int(wrong.argmax())
            raise SnclError(f"{what} are whole numbers or texts, but row {row + 1} holds {values[row]}")
        inexact = np.abs(values) >= INEXACT
        if inexact.any():
            row = int(inexact.argmax())
            raise SnclError(
                f"{what}: row {row + 1} holds {values[row]}, and floating-point numbers of this size merge; write "
                "whole numbers or texts"
            )
        values = values.astype(np.int64)
    if values.dtype.kind not in "iubUS":
        raise SnclError(f"{what} are whole numbers or texts, not {values.dtype}")
    if values.dtype.kind == "U" and not is_unicode(values):
        raise SnclError(f"{what} hold a text that is no valid Unicode")
    try:
        strings: Strings = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(np.str_)
    except UnicodeDecodeError as error:
        raise SnclError(f"{what} hold a text that is no UTF-8 ({error})") from error
    longest = int(np.char.str_len(strings).max(initial=0))
    if longest > LONGEST_TEXT:
        raise SnclError(f"{what} hold a text of {longest} characters; at most {LONGEST_TEXT} are read")
    empty = np.char.str_len(np.char.strip(strings)) == 0
    if empty.any():
        raise SnclError(f"{what} are missing in row {int(empty.argmax()) + 1}")
    return strings


def is_unicode(values: NDArray[Any]) -> bool:
    """Whether an array of texts, which may come from any bytes, holds characters only."""
    codes = np.ascontiguousarray(values).view(
        np.uint32 if values.dtype.isnative else np.dtype(np.uint32).newbyteorder()
    )
    return not ((codes > LAST_CHARACTER) | (codes - np.uint32(0xD800) < SURROGATES)).any()
