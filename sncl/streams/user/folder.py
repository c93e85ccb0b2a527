"""A person's own images: one folder a class, decoded once into an array that is then mapped into memory.

``PATH/<class>/*.png``, or ``PATH/<domain>/<class>/*.png``, with ``train`` and ``test`` (or ``val``) above them where
there is a test set. Rows come in the order of their file names, numbers by value, whatever their class, so that the
frames of a recording keep their order. The array lies in ``.sncl-cache`` beside the images, under a name that follows
from names, sizes and times of all files: when one changes, all are decoded again. It is renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.datasets.images import complete
from sncl.streams.datasets.sources import Progress, data_root
from sncl.streams.user.listing import Asked, Listing, Part, natural, some

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
TESTS = ("test", "val", "valid", "validation")
LAYOUT = "PATH/<class>/*.png, PATH/<domain>/<class>/*.png, or PATH/train and PATH/test with such folders in them"
CACHE = ".sncl-cache"
DECODED_AT_ONCE = 512
GREY = {"1", "L", "LA"}
DEEP = ("I", "F")  # modes of more than 8 bits begin with these
TURNED = range(5, 9)  # orientations that swap width and height
ORIENTATION = 0x0112


class File(NamedTuple):
    """An image, its class, and its domain where there are any."""

    path: Path
    label: str
    domain: str | None


class Header(NamedTuple):
    """What an image says about itself before it is decoded."""

    grey: bool
    width: int
    height: int


def list_folder(asked: Asked, progress: Progress | None = None) -> Listing:
    """The images of a folder."""
    if asked.target is not None or asked.domain is not None:
        raise SnclError("--target and --domain name columns; in a folder, classes and domains are folders themselves")
    if asked.size is not None and asked.size < 1:
        raise SnclError(f"--size is at least 1 pixel, not {asked.size}")
    if not asked.path.is_dir():
        raise SnclError(f"folder: takes a folder of images ({LAYOUT}), and {asked.path} is a file")
    first, second, notes = parts(asked.path)
    train, test = tree(first), None if second is None else tree(second)
    with_domains = {files[0].domain is not None for files in (train, test) if files is not None}
    if len(with_domains) > 1:
        raise SnclError(f"{first} and {second} differ: one has folders of domains and the other has not")
    if asked.cut == "domain" and with_domains == {False}:
        raise SnclError(f"--cut domain needs {asked.path}/<domain>/<class>/ with images in it")

    def load(rows: Tensor, test_rows: Tensor) -> tuple[Tensor, Tensor]:
        files = [train[row] for row in rows.tolist()]
        files += [(train if test is None else test)[row] for row in test_rows.tolist()]
        x = torch.from_numpy(decoded(asked.path, [file.path for file in files], asked.size, progress))
        return x[: len(rows)], x[len(rows) :]

    return Listing(part(train), None if test is None else part(test), load, notes=notes)


def part(files: Sequence[File]) -> Part:
    domains = [file.domain for file in files if file.domain is not None]
    return Part(np.array([file.label for file in files]), np.array(domains) if domains else None)


def parts(path: Path) -> tuple[Path, Path | None, list[str]]:
    """The folder to learn from and the one to test on, and what is left out."""
    inside = {each.name.lower(): each for each in folders(path)}
    if "train" not in inside:
        return path, None, []
    tests = [inside[name] for name in TESTS if name in inside]
    left = [each.name for each in inside.values() if each not in (inside["train"], *tests[:1])]
    notes = [f"not used: the folders {some(left)} beside {inside['train'].name}"] if left else []
    return inside["train"], tests[0] if tests else None, notes


def folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def images(path: Path) -> list[Path]:
    return [
        each
        for each in path.iterdir()
        if each.suffix.lower() in SUFFIXES and not each.name.startswith(".") and each.is_file()
    ]


def tree(path: Path) -> list[File]:
    """All images below a folder, in the order of their names."""
    direct = [File(image, top.name, None) for top in folders(path) for image in images(top)]
    below = [
        File(image, inner.name, top.name) for top in folders(path) for inner in folders(top) for image in images(inner)
    ]
    if not direct and not below:
        raise SnclError(f"{path} holds no images in folders of classes; expected is {LAYOUT}")
    if direct and below:
        raise SnclError(
            f"{path} has images both in {direct[0].path.parent.name}/ and in {below[0].domain}/{below[0].label}/; "
            f"expected is {LAYOUT}"
        )
    return sorted(direct or below, key=lambda file: (natural(file.path.name), file.path))


def decoded(folder: Path, paths: Sequence[Path], size: int | None, progress: Progress | None) -> NDArray[np.uint8]:
    """All images as [rows, channels, height, width]; the first call decodes them, later calls map the result."""
    at = f"{size or 'own-size'}-"
    name = f"{at}{key(folder, paths, size)}.npy"
    beside, elsewhere = folder / CACHE, data_root() / "own-images"
    for place in (beside, elsewhere):
        found = _cached(place / name, len(paths))
        if found is not None:
            return found
    place = beside if _writable(beside) else elsewhere
    if not _writable(place):
        raise SnclError(f"decoded images can be stored neither in {beside} nor in {elsewhere}; set SNCL_DATA")
    with FileLock(place / f"{at}lock"):  # another process may be decoding them
        found = _cached(place / name, len(paths))
        if found is not None:
            return found
        for left in place.glob(f"{at}*.part"):  # by a process that was killed
            left.unlink()
        shape = common_shape(folder, paths, size)
        try:
            _decode(folder, paths, shape, place / name, progress)
        except OSError as error:
            raise SnclError(f"the decoded images cannot be stored in {place} ({error.strerror or error})") from error
        for old in beside.glob(f"{at}*.npy"):  # what the files were like before
            if old.name != name:
                old.unlink()
    found = _cached(place / name, len(paths))
    assert found is not None
    return found


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK)


def key(folder: Path, paths: Sequence[Path], size: int | None) -> str:
    """A name for these files as they are now, in this order, at this size."""
    digest = hashlib.sha256(json.dumps(size).encode())
    for path in paths:
        stamp = path.stat()
        digest.update(json.dumps([str(path.relative_to(folder)), stamp.st_size, stamp.st_mtime_ns]).encode())
    return digest.hexdigest()[:32]


def _cached(path: Path, rows: int) -> NDArray[np.uint8] | None:
    try:
        found: NDArray[np.uint8] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.dtype == np.uint8 and found.ndim == 4 and len(found) == rows else None


def common_shape(folder: Path, paths: Sequence[Path], size: int | None) -> tuple[int, int, int]:
    """Channels, height and width that all images get; an error where they differ and nobody said which size."""
    headers = dict(zip(paths, _each(_header, paths), strict=True))
    refuse(folder, {path: found for path, found in headers.items() if isinstance(found, str)})
    known = {path: found for path, found in headers.items() if isinstance(found, Header)}
    channels = 1 if all(found.grey for found in known.values()) else 3
    if size is not None:
        return channels, size, size
    sizes = {(found.width, found.height): path for path, found in known.items()}
    if len(sizes) > 1:
        shown = some((f"{path.relative_to(folder)} {width} x {height}" for (width, height), path in sizes.items()), 2)
        raise SnclError(f"the images in {folder} are of different sizes ({shown}); give --size, like --size 32")
    ((width, height),) = sizes
    return channels, height, width


def refuse(folder: Path, unreadable: dict[Path, str]) -> None:
    if unreadable:
        shown = some(f"{path.relative_to(folder)} ({why})" for path, why in unreadable.items())
        what = "1 file is" if len(unreadable) == 1 else f"{len(unreadable)} files are"
        raise SnclError(f"{what} no image that can be used in {folder}: {shown}; remove or replace")


def _each(function: Any, items: Sequence[Any]) -> Iterator[Any]:
    """The function of each, on all cores: files are read and decoded without Python's lock."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        yield from pool.map(function, items)


def _header(path: Path) -> Header | str:
    """What the file says about its image, or why it cannot be used."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.mode.startswith(DEEP):
                return "more than 8 bits a pixel"
            turned = image.getexif().get(ORIENTATION) in TURNED
            width, height = reversed(image.size) if turned else image.size
            return Header(image.mode in GREY, width, height)
    except UnidentifiedImageError:
        return "no image"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return " ".join(str(error).split())


def _decode(
    folder: Path, paths: Sequence[Path], shape: tuple[int, int, int], target: Path, progress: Progress | None
) -> None:
    """Decode all files into one array on disk, a few hundred at a time on all cores."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(paths), *shape)}
    with complete(target) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(paths), DECODED_AT_ONCE):
            several = paths[start : start + DECODED_AT_ONCE]
            found = list(_each(lambda path: _pixels(path, shape), several))
            refuse(folder, {path: each for path, each in zip(several, found, strict=True) if isinstance(each, str)})
            file.write(np.stack(found).tobytes())
            if progress is not None:
                progress(start + len(several), len(paths))


def _pixels(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8] | str:
    """One image [channels, height, width], upright, or why it cannot be decoded."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened)
            if "transparency" in image.info:
                image = image.convert("RGBA")
            image = image.convert("L" if channels == 1 else "RGB")
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return " ".join(str(error).split())
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
