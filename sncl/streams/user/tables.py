"""A table of the user's: one row for each sample, in a CSV or Parquet file, or train.csv and test.csv in a folder.

One column is the target, one may be the domain, all others are inputs: columns of numbers as they are, columns of
strings one-hot, with a column of 0 and 1 for each string that occurs in the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.user.columns import Column, Columns, read_columns, table_files
from sncl.streams.user.listing import Annotations, Listing, as_strings, is_number, some, sorted_names
from sncl.streams.user.spec import DataSpec
from sncl.tensors.room import require_memory

TARGET_NAMES = ("target", "label", "class", "y")
MOST_CATEGORIES = 100  # in a column; more are names or free text


def list_table(spec: DataSpec) -> Listing:
    """The rows of a table."""
    if spec.size is not None:
        raise SnclError("`size` is for folders of images; a table takes `target` and `domain`")
    train_path, test_path = table_files(spec.path)
    train = read_columns(train_path)
    test = None if test_path is None else read_columns(test_path)
    target = spec.target or default_target(train)
    check_columns(spec, target, train, train_path)
    if test is not None and set(test) != set(train):
        different = sorted(set(test) ^ set(train))
        raise SnclError(f"{train_path} and {test_path} have different columns: {some(different)} in one only")
    features = [
        feature_of(name, train[name], None if test is None else test[name], train_path)
        for name in train
        if name not in (target, spec.domain)
    ]
    if not features:
        raise SnclError(f"{train_path} has no column beside {target!r} to learn from")

    def load(indices: Tensor, test_indices: Tensor) -> tuple[Tensor, Tensor]:
        rows, test_rows = indices.numpy(), test_indices.numpy()
        tested = train if test is None else test
        width = sum(max(each.categories, 1) for each in features)
        needed = 2 * np.dtype(np.float64).itemsize * width * (len(rows) + len(test_rows))  # in parts, and together
        require_memory(needed, f"{spec.name} as {width} columns of numbers", "remove columns of texts, or rows")
        encoded = [each.encode(train[each.name][rows], tested[each.name][test_rows]) for each in features]
        x, test_x = (np.concatenate(columns, axis=1) for columns in zip(*encoded, strict=True))
        return torch.from_numpy(x), torch.from_numpy(test_x)

    return Listing(
        annotate_rows(train, target, spec.domain, train_path),
        None if test is None or test_path is None else annotate_rows(test, target, spec.domain, test_path),
        load,
        target=target,
        domain=spec.domain,
        notes=notes(target, features, by_default=spec.target is None),
    )


def check_columns(spec: DataSpec, target: str, columns: Columns, path: Path) -> None:
    """Refuse a target or a domain that is no column, or the same one."""
    for role, name in (("target", target), ("domain", spec.domain)):
        if name is not None and name not in columns:
            raise SnclError(f"`{role}`: {path} has no column {name!r}; it has {some(columns, 20)}")
    if target == spec.domain:
        raise SnclError(f"`target` and `domain` name the same column {target!r}")
    if spec.cut == "domain" and spec.domain is None:
        raise SnclError('`cut="domain"` needs `domain=COLUMN` for a table')


@dataclass(frozen=True)
class Feature:
    """A column of inputs: numbers, or categories that are encoded one-hot."""

    name: str
    categories: int = 0  # of a column of strings

    @property
    def categorical(self) -> bool:
        return self.categories > 0

    def encode(self, train: Column, test: Column) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Training and test rows as float64 [rows, 1] or, for categories of the training rows, [rows, categories]."""
        if not self.categorical:
            return train.astype(np.float64)[:, None], test.astype(np.float64)[:, None]
        categories = np.array(sorted_names(train.tolist()))
        columns = (train, test.astype(np.str_))  # a test table may hold numbers there
        first, second = ((column[:, None] == categories).astype(np.float64) for column in columns)
        return first, second


def feature_of(name: str, train: Column, test: Column | None, path: Path) -> Feature:
    """How a column is encoded; one that is mostly numbers holds a typing error, and too many strings are refused."""
    columns = [train] if test is None else [train, test]
    if all(numbers_in(column).all() for column in columns):
        return Feature(name)
    numbers = numbers_in(train)
    if numbers.mean() > 0.5:
        if numbers.all():
            raise SnclError(f"{path}: the column {name!r} holds numbers here and texts in the test table")
        row = int((~numbers).argmax())
        raise SnclError(f"{path}: the column {name!r} holds numbers, but {str(train[row])!r} in row {row + 1}")
    different = len(np.unique(train.astype(np.str_)))
    if different > MOST_CATEGORIES:
        raise SnclError(
            f"{path}: the column {name!r} holds {different} different texts, and at most {MOST_CATEGORIES} become "
            "inputs; remove it or turn it into numbers"
        )
    return Feature(name, different)


def numbers_in(column: Column) -> NDArray[np.bool_]:
    """Which values are numbers."""
    if column.dtype.kind in "biuf":
        return np.ones(len(column), dtype=bool)
    return np.array([is_number(text) for text in column.tolist()], dtype=bool)


def annotate_rows(columns: Columns, target: str, domain: str | None, path: Path) -> Annotations:
    """Labels and domains."""
    return Annotations(
        as_strings(columns[target], f"{path}: the values of the target {target!r}"),
        None if domain is None else as_strings(columns[domain], f"{path}: the values of {domain!r}"),
    )


def default_target(columns: Columns) -> str:
    """The column with a usual name for a target, else the last."""
    usual = [name for name in columns if name.strip().lower() in TARGET_NAMES]
    if len(usual) > 1:
        raise SnclError(f"several columns could be the target: {', '.join(usual)}; name one with `target`")
    return usual[0] if usual else list(columns)[-1]


def notes(target: str, features: list[Feature], by_default: bool) -> list[str]:
    """How the columns are used."""
    names = some((feature.name for feature in features), 8)
    categorical = [feature.name for feature in features if feature.categorical]
    chosen = " (`target` names another)" if by_default else ""
    lines = [f"target is the column {target!r}{chosen}, inputs are {names}"]
    return [*lines, f"one-hot: {some(categorical, 8)}"] if categorical else lines
