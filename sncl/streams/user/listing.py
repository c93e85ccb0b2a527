"""What a reader of a person's own data says before it makes any row: labels and domains as texts, and how to go on.

Which rows are learned and which are tested may follow from the labels, so labels come first and pixels afterwards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError

Form = Literal["folder", "npz", "table"]
Cut = Literal["classes", "domain", "none"]
Texts = NDArray[np.str_]


@dataclass(frozen=True)
class Asked:
    """Where data lie, in which form, and what a person said about them; None: not said."""

    form: Form
    path: Path
    cut: str | None = None
    target: str | None = None
    domain: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        return f"{self.form}:{self.path.name}"


class Part(NamedTuple):
    """The label of each row and, where rows lie in domains, the domain of each."""

    labels: Texts
    domains: Texts | None


@dataclass(frozen=True)
class Listing:
    """Rows to learn from, rows to test on if there are any, and how to make them.

    ``load`` takes the rows to learn from and those to test on, both as positions: of the training part, and of the test
    part or, where there is none, of the training part again.
    """

    train: Part
    test: Part | None
    load: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    target: str | None = None
    domain: str | None = None
    notes: list[str] = field(default_factory=list)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts the numbers in texts by their value: a2 before a10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part]


def is_number(text: str) -> bool:
    """Whether a text is a finite number; Python would also read 1_000."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def in_order(names: Iterable[str]) -> list[str]:
    """Numbers by value, else as :func:`natural` sorts."""
    different = set(names)
    if all(map(is_number, different)):
        return sorted(different, key=lambda name: (float(name), name))
    return sorted(different, key=natural)


def texts(values: NDArray[Any], what: str) -> Texts:
    """Labels or domains as texts: whole numbers, truth values or texts, one a row."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise SnclError(f"{what} hold one label a row, not an array of shape {list(values.shape)}")
    if values.dtype.kind == "f":
        unsound = ~np.isfinite(values) | (values != np.round(values))
        if unsound.any():
            row = int(unsound.argmax())
            raise SnclError(f"{what} are whole numbers or texts, but row {row + 1} holds {values[row]}")
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "iubU":
        raise SnclError(f"{what} are whole numbers or texts, not {values.dtype}")
    found: Texts = values.astype(np.str_)
    empty = np.char.str_len(np.char.strip(found)) == 0
    if empty.any():
        raise SnclError(f"{what} are missing in row {int(empty.argmax()) + 1}")
    return found


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few of many names."""
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")
