"""What lies at a path that was given without a prefix: a table, arrays, or folders of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sncl.errors import SnclError
from sncl.tables.reading import TABLE_SUFFIXES, table_suffix

Form = Literal["folder", "npz", "table"]
ARRAYS = ".npz"
SUFFIXES = (*TABLE_SUFFIXES, ARRAYS)
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
DEPTHS = ("*/*", "*/*/*", "*/*/*/*")  # class, domain and class, train, domain and class
KNOWN = f"known are {', '.join(SUFFIXES)}, a folder of images and a folder with train.csv and test.csv"


def recognised(path: Path) -> tuple[Form, Path] | None:
    """The form of what lies at ``path``, and where exactly; None for a name that is no path."""
    if path.is_dir():
        return form_of_folder(path)
    if (form := form_of_file(path)) is not None:
        return form, path
    if path.is_file():
        raise SnclError(f"{path} is of no form that is read here; {KNOWN}")
    return None


def form_of_file(path: Path) -> Form | None:
    """The form a file has by its name. A spreadsheet is a table, which the reader refuses with advice."""
    if path.suffix.lower() == ARRAYS:
        return "npz"
    return None if table_suffix(path) is None else "table"


def form_of_folder(path: Path) -> tuple[Form, Path]:
    """A folder of images, of a training and a test table, or around a single file; anything else is refused."""
    files = sorted(each for each in path.iterdir() if each.is_file() and form_of_file(each) is not None)
    tables = [each.name for each in files if each.name.lower() in {f"train{suffix}" for suffix in TABLE_SUFFIXES}]
    images = next(images_below(path), None)
    if tables and images is not None:
        raise SnclError(f"{path} holds {tables[0]} and images in folders; say table:{path} or folder:{path}")
    if tables or images is not None:
        return "table" if tables else "folder", path
    if len(files) > 1:
        some = ", ".join(each.name for each in files[:3]) + ", ..." * (len(files) > 3)
        raise SnclError(f"{path} holds {some}; name one of them")
    if not files:
        raise SnclError(f"{path} holds no images in folders of classes, no table and no arrays; {KNOWN}")
    form = form_of_file(files[0])
    assert form is not None
    return form, files[0]


def images_below(path: Path) -> Iterator[Path]:
    """Images in the folders of a folder, as deep as they are looked for."""
    return (
        each
        for depth in DEPTHS
        for each in path.glob(depth)
        if each.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in each.parts[-4:])
    )
