"""Decoding the user's image files into one array of a common size, cached by :mod:`sncl.streams.cache`.

The array lies in ``.sncl-cache`` beside the images or, where that cannot be written to, in the folder of data sets. Its
name follows from names, sizes and times of all files: when one changes, all are decoded again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sncl.errors import SnclError
from sncl.streams.cache import Pixels, Progress, decode_once, in_blocks
from sncl.streams.datasets.sources import data_root
from sncl.streams.user.listing import some

CACHE = ".sncl-cache"
GREY = {"1", "L", "LA"}
DEEP = ("I", "F")  # modes of more than 8 bits begin with these
ROTATED = range(5, 9)  # orientations that swap width and height
ORIENTATION = 0x0112


class Header(NamedTuple):
    """What an image file says before it is decoded."""

    grey: bool
    width: int
    height: int


def decode_images(folder: Path, paths: Sequence[Path], size: int | None, progress: Progress | None = None) -> Pixels:
    """All images [samples, channels, height, width]; the first call decodes them, later calls map the result."""
    elsewhere = data_root() / "user-images" / hashlib.sha256(str(folder).encode()).hexdigest()[:16]

    def decode() -> Iterator[Pixels]:
        shape = common_shape(folder, paths, size)
        for block in in_blocks(lambda path: (path, _pixels(path, shape)), paths):
            refuse(folder, {path: why for path, why in block if isinstance(why, str)})
            yield np.stack([image for _, image in block if not isinstance(image, str)])

    group = "original" if size is None else str(size)
    return decode_once((folder / CACHE, elsewhere), group, key(folder, paths), len(paths), decode, progress)


def key(folder: Path, paths: Sequence[Path]) -> str:
    """A name for these files as they are now, in this order."""
    digest = hashlib.sha256()
    for path in paths:
        stamp = path.stat()
        digest.update(json.dumps([str(path.relative_to(folder)), stamp.st_size, stamp.st_mtime_ns]).encode())
    return digest.hexdigest()[:32]


def common_shape(folder: Path, paths: Sequence[Path], size: int | None) -> tuple[int, int, int]:
    """Channels, height and width of all images; an error where sizes differ and no ``size`` is given."""
    headers = dict(zip(paths, (header for block in in_blocks(_header, paths) for header in block), strict=True))
    refuse(folder, {path: why for path, why in headers.items() if isinstance(why, str)})
    known = {path: header for path, header in headers.items() if isinstance(header, Header)}
    channels = 1 if all(header.grey for header in known.values()) else 3
    if size is not None:
        return channels, size, size
    sizes = {(header.width, header.height): path for path, header in known.items()}
    if len(sizes) > 1:
        shown = some((f"{path.relative_to(folder)} {width} x {height}" for (width, height), path in sizes.items()), 2)
        raise SnclError(f"the images in {folder} are of different sizes ({shown}); give a `size`, like `size=32`")
    ((width, height),) = sizes
    return channels, height, width


def refuse(folder: Path, unreadable: dict[Path, str]) -> None:
    """Raise an error that names the files which are no usable images, if there are any."""
    if unreadable:
        shown = some(f"{path.relative_to(folder)} ({why})" for path, why in unreadable.items())
        what = "1 file is" if len(unreadable) == 1 else f"{len(unreadable)} files are"
        raise SnclError(f"{what} no image that can be used in {folder}: {shown}; remove or replace")


def _header(path: Path) -> Header | str:
    """The header of an image file, or why it cannot be used."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.mode.startswith(DEEP):
                return "more than 8 bits a pixel"
            rotated = image.getexif().get(ORIENTATION) in ROTATED
            width, height = reversed(image.size) if rotated else image.size
            return Header(image.mode in GREY, width, height)
    except UnidentifiedImageError:
        return "no image"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return " ".join(str(error).split())


def _pixels(path: Path, shape: tuple[int, int, int]) -> Pixels | str:
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
