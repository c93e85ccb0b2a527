"""Rows of a request as arrays: numbers of the type and range that a model takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError

NESTED = 8  # axes of an array at most


def as_array(rows: list[Any], dtype: str) -> NDArray[Any]:
    """Lists of numbers, or of lists of them, as an array of that type, without a change of value."""
    try:
        found = np.asarray(rows)
    except ValueError as error:
        raise SnclError("the rows are not all of one length") from error
    if found.dtype.kind not in "biuf" or found.ndim > NESTED:
        raise SnclError("a row is a list of numbers, or of lists of numbers that are all of one length")
    wanted = np.dtype(dtype)
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if found.dtype.kind == "f" or (found.size and (found.min() < limits.min or found.max() > limits.max)):
            raise SnclError(f"values are whole numbers from {limits.min} to {limits.max}")
    return found.astype(wanted)


def as_parts(rows: list[Any], dtypes: dict[str, str]) -> dict[str, NDArray[Any]]:
    """Objects that name the inputs of a network as arrays by name."""
    for row in rows:
        if not isinstance(row, dict) or row.keys() != dtypes.keys():
            raise SnclError(f"each row is an object with {', '.join(sorted(dtypes))}")
    return {name: as_array([row[name] for row in rows], dtype) for name, dtype in dtypes.items()}


def as_table(rows: list[Any], names: list[str] | None) -> Any:
    """Rows of a table: objects by column name, also of lists where there are names; else numbers or any values."""
    if isinstance(rows[0], dict):
        return rows
    if len({len(row) for row in rows}) > 1:
        raise SnclError("the rows are not all of one length")
    if names is not None:
        if len(rows[0]) != len(names):
            raise SnclError(f"a row has the columns {', '.join(names)}: {len(names)} values, not {len(rows[0])}")
        return [dict(zip(names, row, strict=True)) for row in rows]
    kinds = {type(value) for row in rows for value in row}
    return as_array(rows, "float64") if kinds <= {int, float, bool} else np.array(rows, dtype=object)
