"""Files to predict for, in parts of bounded size: tables, arrays and images, whichever the run learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.prediction.arrays import read_array
from sncl.streams.preprocessing import Preprocessing
from sncl.streams.user.listing import natural_key
from sncl.streams.user.recognise import IMAGE_SUFFIXES
from sncl.tables.columns import distinct, some
from sncl.tables.reading import read_table, table_suffix

MOST_ROWS = 10_000  # of a part
PART_BYTES = 2**26
IMAGES_AT_ONCE = 256
ARRAY_SUFFIXES = (".npz", ".npy")

Labels = list[str | None]


class Part(NamedTuple):
    """Some rows in the form that :meth:`Preprocessing.inputs` takes; names of files and true classes, if known."""

    start: int
    raw: Any
    files: list[str] | None = None
    labels: Labels | None = None


@dataclass(frozen=True)
class Source:
    """What is predicted for: how many rows, the parts they come in, and what a user should know of them."""

    path: Path
    rows: int
    parts: Callable[[], Iterator[Part]]
    of_files: bool = False
    notes: list[str] = field(default_factory=list)


def open_source(path: Path, preprocessing: Preprocessing) -> Source:
    """The file or folder as a source; what does not fit the run is refused before anything is predicted."""
    if not path.exists():
        raise SnclError(f"there is no {path} to predict for")
    if preprocessing.pixels and (path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES):
        return _images(path)
    if path.is_file() and path.suffix.lower() in ARRAY_SUFFIXES:
        return _array(path)
    if path.is_file() and preprocessing.form == "table" and table_suffix(path) is not None:
        return _table(path, preprocessing)
    wanted = {
        "table": "a table (.csv, .csv.gz, .tsv, .parquet) or an array (.npy, .npz)",
        "npz": "an array (.npy, .npz)" + (" or images" if preprocessing.pixels else ""),
    }.get(preprocessing.form, "images, a folder of them, or an array of them (.npy, .npz)")
    raise SnclError(f"this run predicts for {wanted}, and {path} is {_what(path)}")


def _what(path: Path) -> str:
    return "a folder" if path.is_dir() else f"a {path.suffix or 'file without a suffix'}"


def _table(path: Path, preprocessing: Preprocessing) -> Source:
    columns, notes = read_table(path)
    target, encoder = preprocessing.target, preprocessing.encoder
    assert encoder is not None
    missing = [name for name, kind in encoder.columns.items() if kind != "ignored" and name not in columns]
    if missing:
        raise SnclError(f"{path} lacks the columns {some(map(repr, missing))}, which the run learned from")
    known = {*encoder.columns, target, preprocessing.domain}
    unused = [name for name in columns if name not in known]
    notes = [*notes, *([f"not used: the columns {some(map(repr, unused))}"] if unused else [])]
    labels = None if target not in columns else _labels(columns[target])
    rows = len(next(iter(columns.values())))

    def parts() -> Iterator[Part]:
        for start in range(0, rows, MOST_ROWS):
            own = slice(start, start + MOST_ROWS)
            raw = {name: column[own] for name, column in columns.items()}
            yield Part(start, raw, labels=None if labels is None else labels[own])

    return Source(path, rows, parts, notes=notes)


def _array(path: Path) -> Source:
    x, y, notes = read_array(path)
    labels = None if y is None else _labels(y)
    step = max(1, min(MOST_ROWS, PART_BYTES // max(x[:1].nbytes, 1)))

    def parts() -> Iterator[Part]:
        for start in range(0, len(x), step):
            own = slice(start, start + step)
            yield Part(start, np.array(x[own]), labels=None if labels is None else labels[own])

    return Source(path, len(x), parts, notes=notes)


def _images(path: Path) -> Source:
    """A single image, or all images below a folder, in the order of their names."""
    found = [path] if path.is_file() else sorted(_below(path), key=lambda each: natural_key(str(each)))
    if not found:
        raise SnclError(f"{path} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    top = path.parent if path.is_file() else path

    def parts() -> Iterator[Part]:
        for start in range(0, len(found), IMAGES_AT_ONCE):
            some_of_them = found[start : start + IMAGES_AT_ONCE]
            yield Part(start, some_of_them, files=[each.relative_to(top).as_posix() for each in some_of_them])

    return Source(path, len(found), parts, of_files=True)


def _below(folder: Path) -> Iterator[Path]:
    for each in folder.iterdir():
        if each.name.startswith("."):
            continue
        if each.is_dir():
            yield from _below(each)
        elif each.suffix.lower() in IMAGE_SUFFIXES and each.is_file():
            yield each


def _labels(column: NDArray[Any]) -> Labels:
    """The true classes by name; None where they are missing."""
    values, codes = distinct(column.reshape(len(column)))
    return [values[code] for code in codes.tolist()]
