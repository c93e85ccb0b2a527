"""A person's own table: one row a line, in a CSV or Parquet file, or train.csv and test.csv in a folder.

One column is the target, one may be the domain, all others are inputs: columns of numbers as they are, columns of texts
as one column of 0 and 1 for each text that occurs in the training rows. A missing value is refused, not guessed.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.user.listing import Asked, Listing, Part, in_order, is_number, some, texts

Column = NDArray[Any]  # numbers (float64) or texts
Columns = dict[str, Column]

SUFFIXES = (".csv", ".parquet")
TARGETS = ("target", "label", "class", "y")
MISSING = ("", "na", "n/a", "nan", "null", "?")
MOST_TEXTS = 100  # different ones in a column; more are names or free text, not categories


def list_table(asked: Asked) -> Listing:
    """The rows of a table."""
    if asked.size is not None:
        raise SnclError("--size is for folders of images; a table takes --target and --domain")
    train_path, test_path = files(asked.path)
    train = read(train_path)
    test = None if test_path is None else read(test_path)
    target = asked.target or usual_target(train)
    for option, name in (("--target", target), ("--domain", asked.domain)):
        if name is not None and name not in train:
            raise SnclError(f"{option}: {train_path} has no column {name!r}; it has {some(train, 20)}")
    if target == asked.domain:
        raise SnclError(f"--target and --domain name the same column {target!r}")
    if asked.cut == "domain" and asked.domain is None:
        raise SnclError("--cut domain needs --domain COLUMN for a table")
    if test is not None and set(test) != set(train):
        odd = sorted(set(test) ^ set(train))
        raise SnclError(f"{train_path} and {test_path} have different columns: {some(odd)} in one only")
    inputs = [name for name in train if name not in (target, asked.domain)]
    if not inputs:
        raise SnclError(f"{train_path} has no column beside {target!r} to learn from")
    coded = [input_of(name, train[name], None if test is None else test[name], train_path) for name in inputs]

    def load(rows: Tensor, test_rows: Tensor) -> tuple[Tensor, Tensor]:
        chosen, tested = rows.numpy(), test_rows.numpy()
        pairs = [
            made.coded(train[made.name][chosen], (train if test is None else test)[made.name][tested]) for made in coded
        ]
        x, test_x = (np.concatenate(blocks, axis=1) for blocks in zip(*pairs, strict=True))
        return torch.from_numpy(x), torch.from_numpy(test_x)

    said = "" if asked.target else " (--target names another)"
    of_texts = [made.name for made in coded if made.categorical]
    notes = [f"target is the column {target!r}{said}, inputs are {some(inputs, 8)}"]
    notes += [f"one-hot: {some(of_texts, 8)}"] if of_texts else []
    return Listing(
        part(train, target, asked.domain, train_path),
        None if test is None or test_path is None else part(test, target, asked.domain, test_path),
        load,
        target=target,
        domain=asked.domain,
        notes=notes,
    )


@dataclass(frozen=True)
class Input:
    """How a column becomes inputs."""

    name: str
    categorical: bool

    def coded(self, train: Column, test: Column) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Training and test rows as float64 [rows, 1] or, for texts of the training rows, [rows, texts]."""
        if not self.categorical:
            return train.astype(np.float64)[:, None], test.astype(np.float64)[:, None]
        categories = np.array(in_order(train.tolist()))
        columns = (train, test.astype(np.str_))  # a test table may hold numbers there
        first, second = ((column[:, None] == categories).astype(np.float64) for column in columns)
        return first, second


def input_of(name: str, train: Column, test: Column | None, path: Path) -> Input:
    """Numbers or texts; one that is mostly numbers holds a slip of the pen, and one of many texts is no category."""
    columns = [train] if test is None else [train, test]
    if all(numbers_in(column).all() for column in columns):
        return Input(name, categorical=False)
    numbers = numbers_in(train)
    if numbers.mean() > 0.5:
        if numbers.all():
            raise SnclError(f"{path}: the column {name!r} holds numbers here and texts in the test table")
        row = int((~numbers).argmax())
        raise SnclError(f"{path}: the column {name!r} holds numbers, but {str(train[row])!r} in row {row + 1}")
    different = len(np.unique(train.astype(np.str_)))
    if different > MOST_TEXTS:
        raise SnclError(
            f"{path}: the column {name!r} holds {different} different texts, and at most {MOST_TEXTS} become inputs; "
            "remove it or turn it into numbers"
        )
    return Input(name, categorical=True)


def numbers_in(column: Column) -> NDArray[np.bool_]:
    """Which values are numbers."""
    if column.dtype.kind in "biuf":
        return np.ones(len(column), dtype=bool)
    return np.array([is_number(text) for text in column.tolist()], dtype=bool)


def part(columns: Columns, target: str, domain: str | None, path: Path) -> Part:
    """Labels and domains."""
    return Part(
        texts(columns[target], f"{path}: the values of the target {target!r}"),
        None if domain is None else texts(columns[domain], f"{path}: the values of {domain!r}"),
    )


def usual_target(columns: Columns) -> str:
    named = [name for name in columns if name.strip().lower() in TARGETS]
    if len(named) > 1:
        raise SnclError(f"several columns could be the target: {', '.join(named)}; name one with --target")
    return named[0] if named else list(columns)[-1]


def files(path: Path) -> tuple[Path, Path | None]:
    """The table, or the training table and the test table of a folder."""
    if not path.is_dir():
        return path, None
    train, test = ([path / f"{name}{suffix}" for suffix in SUFFIXES] for name in ("train", "test"))
    there = [[each for each in several if each.is_file()] for several in (train, test)]
    if any(len(found) != 1 for found in there):
        raise SnclError(f"{path} is a folder, so it needs one train.csv and one test.csv (or .parquet)")
    return there[0][0], there[1][0]


def read(path: Path) -> Columns:
    """The columns of a file by name, with no value missing."""
    if path.suffix.lower() not in SUFFIXES:
        raise SnclError(f"a table is a .csv or .parquet file, not {path}")
    stamp = path.stat()
    return _contents(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=2)
def _contents(path: Path, changed: int, size: int) -> Columns:
    """The columns as they were then; the last ones are kept, for the runs of many seeds."""
    columns = _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)
    if not columns or not len(next(iter(columns.values()))):
        raise SnclError(f"{path} has no rows")
    for name, column in columns.items():
        if column.dtype.kind == "f":
            lost = ~np.isfinite(column)
        elif column.dtype.kind == "U":
            lost = np.isin(np.char.lower(np.char.strip(column)), MISSING)
        else:
            continue
        if lost.any():
            row = int(lost.argmax())
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
    """Numbers if all of them are, else texts."""
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
        found = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise SnclError(f"{path} cannot be read as Parquet ({error})") from error
    columns: Columns = {}
    for name, stored in zip(found.column_names, found.columns, strict=True):
        coded = pyarrow.types.is_dictionary(stored.type)
        values = stored.cast(stored.type.value_type) if coded else stored
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
