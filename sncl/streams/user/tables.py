"""A table of the user's: one row for each sample, in a CSV or Parquet file, or train.csv and test.csv in a folder.

One column is the target, one may be the domain, all others are inputs. The kinds of columns are read off the file;
what they hold is learned in the order of the stream (:mod:`sncl.streams.encoding`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.raw import RawTable, take_rows
from sncl.streams.user.listing import Annotations, Inputs, Listing, Strings, as_strings
from sncl.streams.user.spec import DataSpec
from sncl.tables.columns import Column, Columns, is_missing, some
from sncl.tables.encoder import TableEncoder, decide_kinds
from sncl.tables.kinds import Decided
from sncl.tables.reading import read_table, table_files
from sncl.tensors.room import require_memory

TARGET_NAMES = ("target", "label", "class", "y")


def list_table(spec: DataSpec) -> Listing:
    """The rows of a table."""
    if spec.size is not None:
        raise SnclError("`size` is for folders of images; a table takes `target` and `domain`")
    train_path, test_path = table_files(spec.path)
    train, noticed = read_table(train_path)
    test = None if test_path is None else read_table(test_path).columns
    target = spec.target or default_target(train)
    check_columns(spec, target, train, train_path)
    if test is not None and set(test) != set(train):
        different = sorted(set(test) ^ set(train))
        raise SnclError(f"{train_path} and {test_path} have different columns: {some(different)} in one only")
    inputs = {name: column for name, column in train.items() if name not in (target, spec.domain)}
    if not inputs:
        raise SnclError(f"{train_path} has no column beside {target!r} to learn from")
    tables = [(train_path, inputs), *([] if test is None or test_path is None else [(test_path, test)])]
    kinds, encoder = understood(spec, tables)

    def load(indices: Tensor, test_indices: Tensor) -> Inputs:
        rows = take_rows(inputs, indices.numpy())
        tested = take_rows({name: (inputs if test is None else test)[name] for name in inputs}, test_indices.numpy())
        return inputs_of(spec, encoder, RawTable(rows, tested, kinds, numeric=is_numeric(encoder, rows, tested)))

    return Listing(
        annotate_rows(train, target, spec.domain, train_path),
        None if test is None or test_path is None else annotate_rows(test, target, spec.domain, test_path),
        load,
        target=target,
        domain=spec.domain,
        notes=[*noticed, *notes(target, encoder, by_default=spec.target is None)],
    )


def understood(spec: DataSpec, tables: list[tuple[Path, Columns]]) -> tuple[dict[str, Decided], TableEncoder]:
    """The kinds of columns, by the training table, and an encoder of them; values that do not fit are refused."""
    path, inputs = tables[0]
    try:
        kinds = decide_kinds(inputs, spec.ignore, spec.categories, spec.numbers)
        encoder = TableEncoder.of_kinds(inputs, kinds)
        for path, columns in tables:  # noqa: B007  # named by the error
            encoder.check(columns)
    except SnclError as error:
        raise SnclError(f"{path}: {error}") from error
    return kinds, encoder


def is_numeric(encoder: TableEncoder, train: Columns, test: Columns) -> bool:
    """Whether all columns that are used are numbers, and none is missing."""
    names = [coder.name for coder in encoder.coders]
    complete = not any(is_missing(columns[name]).any() for columns in (train, test) for name in names)
    return encoder.plain and complete


def inputs_of(spec: DataSpec, encoder: TableEncoder, table: RawTable) -> Inputs:
    """What is known of the inputs before the order of the stream is."""
    count, tested = (len(next(iter(columns.values()))) for columns in (table.train, table.test))
    if not table.numeric:
        empty = torch.empty((count + tested, 0), dtype=torch.float64)
        return Inputs(empty[:count], empty[count:], table)
    needed = 2 * np.dtype(np.float64).itemsize * encoder.width * (count + tested)  # in parts, and together
    require_memory(needed, f"{spec.name} as {encoder.width} columns of numbers", "remove columns or rows")
    train, test = (encoder.encode(columns) for columns in (table.train, table.test))
    raw = RawTable(named_columns(encoder, train), named_columns(encoder, test), table.kinds, numeric=True)
    return Inputs(torch.from_numpy(train), torch.from_numpy(test), raw)


def named_columns(encoder: TableEncoder, matrix: Column) -> Columns:
    """Encoded numbers as the columns they were, without another copy of them."""
    return {coder.name: matrix[:, place] for place, coder in enumerate(encoder.coders)}


def check_columns(spec: DataSpec, target: str, columns: Columns, path: Path) -> None:
    """Refuse a target or a domain that is no column, or the same one."""
    for role, name in (("target", target), ("domain", spec.domain)):
        if name is not None and name not in columns:
            raise SnclError(f"`{role}`: {path} has no column {name!r}; it has {some(columns, 20)}")
    if target == spec.domain:
        raise SnclError(f"`target` and `domain` name the same column {target!r}")
    if spec.cut == "domain" and spec.domain is None:
        raise SnclError('`cut="domain"` needs `domain=COLUMN` for a table')


def annotate_rows(columns: Columns, target: str, domain: str | None, path: Path) -> Annotations:
    """Labels and domains."""
    return Annotations(
        names_in(columns[target], f"{path}: the values of the target {target!r}"),
        None if domain is None else names_in(columns[domain], f"{path}: the values of {domain!r}"),
    )


def names_in(column: Column, what: str) -> Strings:
    """A column of labels or domains as strings; none may be missing."""
    missing = is_missing(column)
    if missing.any():
        row = int(missing.argmax()) + 1
        raise SnclError(f"{what} are missing in row {row}; fill it in or remove the row")
    return as_strings(column.astype(np.str_) if column.dtype.kind in "OM" else column, what)


def default_target(columns: Columns) -> str:
    """The column with a usual name for a target, else the last."""
    usual = [name for name in columns if name.strip().lower() in TARGET_NAMES]
    if len(usual) > 1:
        raise SnclError(f"several columns could be the target: {', '.join(usual)}; name one with `target`")
    return usual[0] if usual else list(columns)[-1]


def notes(target: str, encoder: TableEncoder, by_default: bool) -> list[str]:
    """How the columns are used."""
    names = some((coder.name for coder in encoder.coders), 8)
    one_hot = [coder.name for coder in encoder.coders if coder.kind == "category"]
    chosen = " (`target` names another)" if by_default else ""
    lines = [f"target is the column {target!r}{chosen}, inputs are {names}"]
    return [*lines, *([f"one-hot: {some(one_hot, 8)}"] if one_hot else []), *encoder.notes]
