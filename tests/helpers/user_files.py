"""Data as a user might have them: the digits as arrays and as images, a table of flowers. Used by many tests."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_iris

from sncl.streams.datasets.sources import Dataset, load
from sncl.streams.user.data import Loaded, read
from sncl.streams.user.spec import parse_spec

Rows = list[list[Any]]


def read_data(stream: str | Path, progress: Callable[[int, int], None] | None = None, **options: Any) -> Loaded:
    """The data set that a stream's name and options specify."""
    spec = parse_spec(str(stream), **options)
    assert spec is not None
    return read(spec, progress)


def digits() -> Dataset:
    return load("digits", Path("."))


def save_digits(path: Path) -> Path:
    """The embedded digits, with the same rows to learn from and to test on."""
    dataset = digits()
    np.savez_compressed(
        path,
        x_train=dataset.train_x.numpy(),
        y_train=dataset.train_y.numpy(),
        x_test=dataset.test_x.numpy(),
        y_test=dataset.test_y.numpy(),
    )
    return path


def save_images(folder: Path) -> Path:
    """The same as PNG files, numbered in their order."""
    dataset = digits()
    for part, x, y in (("train", dataset.train_x, dataset.train_y), ("test", dataset.test_x, dataset.test_y)):
        for number, (image, label) in enumerate(zip(x.numpy(), y.tolist(), strict=True)):
            place = folder / part / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0]).save(place / f"{number}.png")
    return folder


def save_image(path: Path, size: tuple[int, int] = (6, 5), colour: Any = 100, mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


def save_small_images(folder: Path, classes: Sequence[str] = ("ape", "bee"), each: int = 5, mode: str = "L") -> Path:
    """A few images of one colour each, no two alike."""
    for place, name in enumerate(classes):
        for number in range(each):
            shade = 40 * place + 7 * number
            save_image(folder / name / f"{number}.png", colour=shade if mode == "L" else (shade, 9, 200), mode=mode)
    return folder


def flowers() -> Rows:
    """150 lines: four numbers, a text, a year and the kind, mixed up in a fixed way."""
    found = load_iris()
    order = np.random.default_rng(0).permutation(len(found.target))
    soils = ("clay", "sand", "loam")
    kinds = [str(found.target_names[label]) for label in found.target]
    return [[*found.data[row].tolist(), soils[row % 3], 2020 + row % 2, kinds[row]] for row in order.tolist()]


HEADER = ["sepal length", "sepal width", "petal length", "petal width", "soil", "year", "kind"]


def save_table(path: Path, rows: Rows | None = None, header: Sequence[str] = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(header), *(flowers() if rows is None else rows)])
    return path


def save_uneven(path: Path, rows: int = 400, rare: int = 8, seed: int = 0) -> Path:
    """A table of two kinds that overlap: "no", and every ``rare``-th row "yes"."""
    numbers = np.random.default_rng(seed)
    kinds = ["yes" if number % rare == 0 else "no" for number in range(rows)]
    points = numbers.normal(size=(rows, 4)) + np.array([[1.2 if kind == "yes" else 0.0] for kind in kinds])
    lines = [[*point.tolist(), kind] for point, kind in zip(points, kinds, strict=True)]
    return save_table(path, lines, [*"abcd", "kind"])


def save_arrays(path: Path, change: Callable[[dict[str, Any]], Any] = lambda arrays: None, rows: int = 40) -> Path:
    """Forty rows of three numbers, two classes 3 and 7 in turn; ``change`` may spoil them."""
    numbers = np.random.default_rng(1)
    y = np.where(np.arange(rows) % 2, 7, 3)
    arrays = {"x": numbers.normal(size=(rows, 3)) + y[:, None], "y": y}
    change(arrays)
    np.savez(path, **arrays)
    return path
