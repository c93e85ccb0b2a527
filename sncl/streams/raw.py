"""The raw columns of a table, which are encoded only when the order of the stream is known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sncl.tables.columns import Columns
from sncl.tables.kinds import Decided

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawTable:
    """The input columns of the training and the test rows, and the kind of each.

    A table of ``numeric`` columns without a missing value is the same numbers before and after.
    """

    train: Columns
    test: Columns
    kinds: dict[str, Decided]
    numeric: bool

    def digest(self) -> str:
        """SHA-256 over kinds and values."""
        digest = hashlib.sha256(json.dumps({name: found[:2] for name, found in self.kinds.items()}).encode())
        for columns in (self.train, self.test):
            for name, found in self.kinds.items():
                if found.kind != "ignored":
                    digest.update(_content(columns[name]))
        return digest.hexdigest()


def _content(column: NDArray[np.generic]) -> bytes:
    """The values of a column, the same however they are stored."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64).tobytes()
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]").tobytes()
    return json.dumps([None if value is None else str(value) for value in column.tolist()]).encode()


def take_rows(columns: Columns, rows: Indices) -> Columns:
    """Some of the rows."""
    return {name: column[rows] for name, column in columns.items()}
