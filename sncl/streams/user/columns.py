"""Tables on disk as columns by name: CSV and Parquet files, with every missing value refused."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError

Column = NDArray[Any]  # numbers (float64) or strings
Columns = dict[str, Column]

TABLE_SUFFIXES = (".csv", ".parquet")
MISSING_VALUES = ("", "na", "n/a", "nan", "null", "?")


def table_files(path: Path) -> tuple[Path, Path | None]:
    """The table, or the training table and the test table of a folder."""
    if not path.is_dir():
        return path, None
    train, test = (
        [path / f"{name}{suffix}" for suffix in TABLE_SUFFIXES if (path / f"{name}{suffix}").is_file()]
        for name in ("train", "test")
    )
    if len(train) != 1 or len(test) != 1:
        raise SnclError(f"{path} is a folder, so it needs one train.csv and one test.csv (or .parquet)")
    return train[0], test[0]


def read_columns(path: Path) -> Columns:
    """The columns of a file by name, with no value missing."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise SnclError(f"a table is a .csv or .parquet file, not {path}")
    stamp = path.stat()
    return _columns(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=2)
def _columns(path: Path, modified: int, size: int) -> Columns:
    """The columns of the file as modified then; the last two files are kept, for the runs of many seeds."""
    columns = _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)
    if not columns or not len(next(iter(columns.values()))):
        raise SnclError(f"{path} has no rows")
    for name, column in columns.items():
        if column.dtype.kind == "f":
            missing = ~np.isfinite(column)
        elif column.dtype.kind == "U":
            missing = np.isin(np.char.lower(np.char.strip(column)), MISSING_VALUES)
        else:
            continue
        if missing.any():
            row = int(missing.argmax())
            raise SnclError(
                f"{path}: row {row + 1} has no value in the column {name!r} ({str(column[row])!r}); fill it in or "
                "remove the row"
            )
    return columns


def _csv(path: Path) -> Columns:
    """Comma, semicolon or tab between fields, the names of the columns in the first line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            separator = max(",;\t", key=head.count)
            lines = [line for line in csv.reader(file, delimiter=separator, strict=True) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SnclError(f"{path} cannot be read as CSV ({error})") from error
    if len(lines) < 2:
        raise SnclError(f"{path} has no rows below a line with the names of the columns")
    names = [name.strip() for name in lines[0]]
    unclear = [name or "a column without a name" for name in names if names.count(name) > 1 or not name]
    if unclear:
        raise SnclError(f"{path}: the first line names every column once, but not {unclear[0]}")
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(names):
            raise SnclError(f"{path}: row {number} has {len(line)} fields instead of {len(names)}")
    return {name: _typed(column) for name, column in zip(names, zip(*lines[1:], strict=True), strict=True)}


def _typed(values: tuple[str, ...]) -> Column:
    """Numbers if all of them are, else strings."""
    column = np.char.strip(np.array(values, dtype=np.str_))
    try:
        numbers: Column = column.astype(np.float64)
    except ValueError:
        return column
    return column if (np.char.find(column, "_") >= 0).any() else numbers  # 1_000 is none, though Python reads it


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SnclError("Parquet needs pyarrow: pip install sncl[tables]") from error
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise SnclError(f"{path} cannot be read as Parquet ({error})") from error
    columns: Columns = {}
    for name, stored in zip(table.column_names, table.columns, strict=True):
        encoded = pyarrow.types.is_dictionary(stored.type)
        values = stored.cast(stored.type.value_type) if encoded else stored
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            raise SnclError(f"{path}: row {row + 1} has no value in the column {name!r}; fill it in or remove the row")
        if pyarrow.types.is_string(values.type) or pyarrow.types.is_large_string(values.type):
            columns[name] = np.char.strip(np.array(values.to_pylist(), dtype=np.str_))
            continue
        column = values.to_numpy()
        if column.dtype.kind not in "biuf":
            raise SnclError(f"{path}: the column {name!r} holds {values.type}; columns are numbers or texts")
        columns[name] = column if column.dtype.kind in "biu" else column.astype(np.float64)
    return columns
