"""Tables on disk as columns by name: CSV and Parquet files, with every missing value refused."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.room import require_memory
from sncl.streams.user.listing import INEXACT, LONGEST_TEXT

Column = NDArray[Any]  # numbers (float64, or whole ones) or strings
Columns = dict[str, Column]

TABLE_SUFFIXES = (".csv", ".parquet")
WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
INT64 = np.iinfo(np.int64)
BYTES_A_BYTE = 5  # of a CSV file, at least: its cells as Python strings
BYTES_A_CELL = 8  # of a Parquet file, at least
BYTES_A_CHARACTER = 12  # of an array of strings: four, and two copies on the way
SMALLER = "remove columns or rows"
UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, NotImplementedError)
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
    require_memory(path.stat().st_size * BYTES_A_BYTE, f"reading {path}", SMALLER)
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
    _refuse_unclear(path, names)
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(names):
            raise SnclError(f"{path}: row {number} has {len(line)} fields instead of {len(names)}")
    columns = zip(*lines[1:], strict=True)
    return {name: _typed(path, name, column) for name, column in zip(names, columns, strict=True)}


def _refuse_unclear(path: Path, names: list[str]) -> None:
    """Refuse columns of the same name, or of none."""
    counts = Counter(names)
    unclear = [name or "a column without a name" for name in names if counts[name] > 1 or not name]
    if unclear:
        raise SnclError(f"{path}: the first line names every column once, but not {unclear[0]}")


def _typed(path: Path, name: str, values: Sequence[str]) -> Column:
    """Numbers if all of them are, else strings. Whole numbers that float64 would merge stay whole."""
    texts = [value.strip() for value in values]
    try:
        if any("_" in text for text in texts):  # 1_000 is no number, though Python reads it
            raise ValueError
        numbers: Column = np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError:
        return _texts(path, name, texts)
    if np.abs(numbers).max() < INEXACT or not all(map(WHOLE.fullmatch, texts)):
        return numbers
    _refuse_long(path, name, texts)
    whole = [int(text.partition(".")[0]) for text in texts]
    fits = all(INT64.min <= value <= INT64.max for value in whole)
    return np.array(whole, dtype=np.int64) if fits else _texts(path, name, list(map(str, whole)))


def _texts(path: Path, name: str, texts: list[str]) -> Column:
    """An array of strings, in which every one takes the room of the longest."""
    longest = _refuse_long(path, name, texts)
    require_memory(BYTES_A_CHARACTER * longest * len(texts), f"{path}: the column {name!r}", SMALLER)
    return np.array(texts, dtype=np.str_)


def _refuse_long(path: Path, name: str, texts: list[str]) -> int:
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


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow
    except ImportError as error:
        raise SnclError("Parquet needs pyarrow: pip install sncl[tables]") from error
    try:
        table = _arrow_table(path)
        _refuse_unclear(path, table.column_names)
        return {
            name: _arrow_column(path, name, column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except (*UNREADABLE, pyarrow.ArrowException) as error:
        raise SnclError(f"{path} cannot be read as Parquet ({error})") from error


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


def _arrow_column(path: Path, name: str, stored: Any) -> Column:
    from pyarrow import types

    if stored.null_count:
        row = stored.is_null().to_pylist().index(True)
        raise SnclError(f"{path}: row {row + 1} has no value in the column {name!r}; fill it in or remove the row")
    encoded = types.is_dictionary(stored.type)
    kind = stored.type.value_type if encoded else stored.type
    if _is_text(kind):
        return _texts(path, name, _decoded(path, name, stored) if encoded else list(map(str.strip, stored.to_pylist())))
    column: Column = (stored.cast(kind) if encoded else stored).to_numpy()
    if column.dtype.kind not in "biuf":
        raise SnclError(f"{path}: the column {name!r} holds {kind}; columns are numbers or texts")
    return column if column.dtype.kind in "biu" else column.astype(np.float64)


def _decoded(path: Path, name: str, stored: Any) -> list[str]:
    """The texts of a column that is stored as different texts and their numbers."""
    found: list[str] = []
    for chunk in stored.chunks:
        different = [text.strip() for text in chunk.dictionary.to_pylist()]
        _refuse_long(path, name, different)
        found += [different[number] for number in chunk.indices.to_pylist()]
    return found
