"""Parquet files, and other tables of Arrow, as columns by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sncl.errors import SnclError, lacking
from sncl.tables.cells import SMALLER, refuse_long, texts_with_none
from sncl.tables.columns import Column, Columns
from sncl.tables.separated import refuse_unclear
from sncl.tensors.room import require_memory

BYTES_A_CELL = 8  # of a Parquet file, at least
NO_PARQUET = (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, NotImplementedError)


def read_parquet(path: Path) -> tuple[Columns, list[str]]:
    """The columns of a Parquet file; there is nothing to notice."""
    try:
        import pyarrow
    except ImportError as error:
        raise lacking("Parquet", "pyarrow") from error
    try:
        return arrow_columns(path, _arrow_table(path)), []
    except (*NO_PARQUET, pyarrow.ArrowException) as error:
        raise SnclError(f"{path} cannot be read as Parquet ({error})") from error


def arrow_columns(path: Path, table: Any) -> Columns:
    """The columns of a table of Arrow; ``path`` is what errors call it."""
    refuse_unclear(path, table.column_names)
    return {name: _column(path, name, each) for name, each in zip(table.column_names, table.columns, strict=True)}


def _arrow_table(path: Path) -> Any:
    """The table with its texts as a list of different ones and their numbers, which few of them keep small."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        cells = max(file.metadata.num_rows, 0) * file.metadata.num_columns
        require_memory(BYTES_A_CELL * cells, f"reading {path}", SMALLER)
        texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    table = parquet.read_table(path, read_dictionary=texts)
    table.validate(full=True)  # also that texts are UTF-8
    return table


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _column(path: Path, name: str, stored: Any) -> Column:
    import pyarrow
    from pyarrow import types

    encoded = types.is_dictionary(stored.type)
    kind = stored.type.value_type if encoded else stored.type
    if _is_text(kind):
        texts = _decoded(path, name, stored) if encoded else [_stripped(text) for text in stored.to_pylist()]
        return texts_with_none(path, name, [text or "" for text in texts], [text is None for text in texts])
    values = stored.cast(kind) if encoded else stored
    if types.is_boolean(kind) and values.null_count:
        column: Column = np.empty(len(values), dtype=object)
        column[:] = values.to_pylist()
        return column
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    if types.is_decimal(kind):
        values = values.cast(pyarrow.float64())
    column = values.to_numpy()
    if column.dtype.kind not in "biufM":
        raise SnclError(f"{path}: the column {name!r} holds {kind}; columns are numbers, texts, truth values or dates")
    if column.dtype.kind != "f":
        return column
    infinite = np.isinf(column)
    if infinite.any():
        row = int(infinite.argmax()) + 1
        raise SnclError(f"{path}: row {row} holds infinity in the column {name!r}; put it right or leave it empty")
    return column.astype(np.float64)


def _stripped(text: str | None) -> str | None:
    """None for a text that says nothing."""
    return None if text is None or not text.strip() else text.strip()


def _decoded(path: Path, name: str, stored: Any) -> list[str | None]:
    """The texts of a column that is stored as different texts and their numbers."""
    found: list[str | None] = []
    for chunk in stored.chunks:
        different = [_stripped(text) for text in chunk.dictionary.to_pylist()]
        refuse_long(path, name, [text or "" for text in different])
        found += [None if number is None else different[number] for number in chunk.indices.to_pylist()]
    return found
