"""Tables in memory as columns by name: data frames, arrays, sparse matrices, lists of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sncl.errors import SnclError, lacking
from sncl.tables.columns import Column, Columns, settled, some
from sncl.tables.parquet import arrow_columns
from sncl.tensors.room import require_memory

BYTES_A_NUMBER = 8


def columns_of(rows: Any, names: Sequence[str] | None = None) -> Columns:
    """The columns of a data frame, of an array [rows, columns] of numbers or objects, of a SciPy sparse matrix, of a
    list of rows or of dictionaries.

    Dictionaries name their values, and one that lacks a name misses that value. ``names`` are those of columns that
    have none; else they are called x1, x2 and so on.
    """
    if isinstance(rows, Mapping):
        return {str(name): settled(values, str(name)) for name, values in rows.items()}
    if is_sparse(rows):
        return _of_array(with_zeros(rows), names)
    if is_frame(rows):
        return _of_frame(rows)
    if isinstance(rows, Sequence) and not isinstance(rows, str) and rows and isinstance(rows[0], Mapping):
        return _of_records(rows)
    if hasattr(rows, "__dataframe__"):
        return _exchanged(rows)
    if isinstance(rows, np.ndarray):
        return _of_array(rows, names)
    return _of_rows(rows, names)


def is_frame(rows: Any) -> bool:
    """Whether this is a table of pandas or something like it."""
    return hasattr(rows, "columns") and hasattr(rows, "dtypes")


def is_sparse(rows: Any) -> bool:
    """Whether this is a matrix of SciPy that keeps only what is not zero."""
    return hasattr(rows, "tocsr") and hasattr(rows, "nnz")


def with_zeros(rows: Any) -> Column:
    """A sparse matrix with all its zeros; refused where there is no room for them."""
    count, width = rows.shape
    needed = BYTES_A_NUMBER * count * width
    require_memory(needed, f"a sparse matrix of {count} x {width} with its zeros", "give fewer rows at a time")
    array: Column = np.asarray(rows.toarray())
    return array


def _of_frame(frame: Any) -> Columns:
    labels = [str(label) for label in frame.columns]
    twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if twice:
        raise SnclError(f"the table has several columns {twice[0]!r}; give each a name of its own")
    by_place = hasattr(frame, "iloc")
    series = (frame.iloc[:, place] if by_place else frame[label] for place, label in enumerate(frame.columns))
    return {label: _of_series(each, label) for label, each in zip(labels, series, strict=True)}


def _of_series(series: Any, name: str) -> Column:
    """One column of a data frame; of what is missing there are many kinds."""
    if getattr(series.dtype, "tz", None) is not None or getattr(series.dtype, "kind", "") == "M":
        return settled(series.to_numpy(dtype="datetime64[us]"), name)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return settled(series.to_numpy(), name)
    missing = getattr(series, "isna", None)
    values: Column = np.array(series.to_numpy(), dtype=object)
    if missing is not None:
        values[np.asarray(missing(), dtype=np.bool_)] = None
    return settled(values, name)


def _of_records(rows: Sequence[Mapping[str, Any]]) -> Columns:
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    found = {}
    for name in names:
        values = np.empty(len(rows), dtype=object)
        values[:] = [row.get(name) for row in rows]
        found[name] = settled(values, name)
    return found


def _exchanged(rows: Any) -> Columns:
    """Any data frame that can show itself to others."""
    try:
        from pyarrow import interchange
    except ImportError as error:
        raise lacking("this kind of table", "pyarrow") from error
    return arrow_columns(Path("the table"), interchange.from_dataframe(rows))


def _of_array(rows: Column, names: Sequence[str] | None) -> Columns:
    if rows.ndim != 2:
        raise SnclError(f"a table is an array [rows, columns], not one of shape {list(rows.shape)}")
    called = _called(names, rows.shape[1])
    return {name: settled(rows[:, place], name) for place, name in enumerate(called)}


def _of_rows(rows: Any, names: Sequence[str] | None) -> Columns:
    """Rows that are sequences of values; each value keeps its kind."""
    try:
        listed = [list(row) for row in rows]
    except TypeError as error:
        raise SnclError(f"a table is a list of rows, not {type(rows).__name__}") from error
    widths = {len(row) for row in listed}
    if len(widths) > 1:
        raise SnclError(f"the rows of a table have one length, not {some(map(str, sorted(widths)))} values")
    called = _called(names, next(iter(widths), 0))
    found = {}
    for name, values in zip(called, zip(*listed, strict=True), strict=True):
        column = np.empty(len(listed), dtype=object)
        column[:] = values
        found[name] = settled(column, name)
    return found


def _called(names: Sequence[str] | None, width: int) -> list[str]:
    if names is None:
        return [f"x{number}" for number in range(1, width + 1)]
    if len(names) != width:
        raise SnclError(f"the table has {width} columns, and {len(names)} names are given")
    return [str(name) for name in names]
