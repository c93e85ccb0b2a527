"""Decoding the user's image files into one array of a common size, cached by :mod:`sncl.streams.cache`.

The array lies in ``.sncl-cache`` beside the images or, where that cannot be written to, in the folder of data sets. Its
name follows from names, sizes and times of all files: when one changes, all are decoded again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sncl.errors import SnclError
from sncl.streams.cache import Pixels, Progress, decode_once, in_blocks
from sncl.streams.datasets.sources import data_root
from sncl.tables.columns import some
from sncl.tensors.room import require_memory

CACHE = ".sncl-cache"
BYTES_A_PIXEL = 12  # while an image is decoded, turned and converted
GREY = {"1", "L", "LA"}
DEEP = ("I", "F")  # modes of more than 8 bits begin with these
ROTATED = range(5, 9)  # orientations that swap width and height
ORIENTATION = 0x0112


class Header(NamedTuple):
    """What an image file says before it is decoded."""

    grey: bool
    width: int
    height: int

    @property
    def cost(self) -> int:
        """Bytes that decoding takes."""
        return self.width * self.height * BYTES_A_PIXEL


def decode_images(folder: Path, paths: Sequence[Path], size: int | None, progress: Progress | None = None) -> Pixels:
    """All images [samples, channels, height, width]; the first call decodes them, later calls map the result."""
    elsewhere = data_root() / "user-images" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]

    def decode() -> Iterator[Pixels]:
        headers = read_headers(folder, paths)
        shape = common_shape(folder, headers, size)
        costs = [headers[path].cost + math.prod(shape) for path in paths]
        for block in in_blocks(lambda path: (path, _pixels(path, shape)), paths, costs):
            refuse(folder, {path: why for path, why in block if isinstance(why, str)})
            yield np.stack([image for _, image in block if not isinstance(image, str)])

    group = "original" if size is None else str(size)
    return decode_once((folder / CACHE, elsewhere), group, key(folder, paths), len(paths), decode, progress)


def decode_like(paths: Sequence[Path], shape: tuple[int, int, int], resize: bool) -> Pixels:
    """Images as they are decoded for a run of this shape; without ``resize``, those of another size are refused."""
    files = [path.absolute() for path in paths]
    above = Path(os.path.commonpath([path.parent for path in files]))
    headers = read_headers(above, files)
    if not resize:
        refuse_other_sizes(upright_sizes(above, headers), shape)
    costs = [headers[path].cost + math.prod(shape) for path in files]
    images: list[Pixels] = []
    for block in in_blocks(lambda path: (path, _pixels(path, shape)), files, costs):
        refuse(above, {path: why for path, why in block if isinstance(why, str)})
        images += [image for _, image in block if not isinstance(image, str)]
    return np.stack(images)


def refuse_other_sizes(sizes: dict[Path, tuple[int, int]], shape: tuple[int, int, int]) -> None:
    """Refuse an image that a run of this shape would have to resize."""
    _, height, width = shape
    for path, size in sizes.items():
        if size != (width, height):
            raise SnclError(
                f"{path} is an image of {size[0]} x {size[1]} pixels, and the run learned from {width} x {height}; it "
                "was made without `size`, so images are not resized"
            )


def key(folder: Path, paths: Sequence[Path]) -> str:
    """A name for these files as they are now, in this order."""
    digest = hashlib.sha256()
    for path in paths:
        stamp = path.stat()
        digest.update(json.dumps([str(path.relative_to(folder)), stamp.st_size, stamp.st_mtime_ns]).encode())
    return digest.hexdigest()[:32]


def read_headers(folder: Path, paths: Sequence[Path]) -> dict[Path, Header]:
    """What each file says of its image; one that says nothing, or is too large to be decoded, is refused."""
    read = dict(zip(paths, (header for block in in_blocks(_header, paths) for header in block), strict=True))
    refuse(folder, {path: header for path, header in read.items() if isinstance(header, str)})
    headers = {path: header for path, header in read.items() if isinstance(header, Header)}
    largest = max(headers, key=lambda path: headers[path].cost)
    width, height = headers[largest].width, headers[largest].height
    what = f"decoding {largest.relative_to(folder)} in {folder}, an image of {width} x {height} pixels,"
    require_memory(headers[largest].cost, what, "make it smaller or remove it")
    return headers


def common_shape(folder: Path, headers: dict[Path, Header], size: int | None) -> tuple[int, int, int]:
    """Channels, height and width of all images; an error where sizes differ, or are large, and no ``size`` is given."""
    channels = 1 if all(header.grey for header in headers.values()) else 3
    if size is not None:
        return channels, size, size
    upright = upright_sizes(folder, headers)
    sizes = {size: path for path, size in upright.items()}
    if len(sizes) > 1:
        shown = some((f"{path.relative_to(folder)} {width} x {height}" for (width, height), path in sizes.items()), 2)
        raise SnclError(f"the images in {folder} are of different sizes ({shown}); give a `size`, like `size=32`")
    ((width, height),) = sizes
    needed, what = channels * height * width * len(headers), f"{len(headers)} images of {width} x {height} in {folder}"
    require_memory(needed, what, "give a smaller `size`, like `size=64`")
    return channels, height, width


def upright_sizes(folder: Path, headers: dict[Path, Header]) -> dict[Path, tuple[int, int]]:
    """Width and height of each image as it is seen. Some files are decoded to find how; square ones need not be."""
    found = {path: (header.width, header.height) for path, header in headers.items()}
    oblong = [path for path, (width, height) in found.items() if width != height]
    costs = [headers[path].cost for path in oblong]
    rotated = dict(
        zip(oblong, (each for block in in_blocks(_is_rotated, oblong, costs) for each in block), strict=True)
    )
    refuse(folder, {path: why for path, why in rotated.items() if isinstance(why, str)})
    return found | {path: (found[path][1], found[path][0]) for path, turned in rotated.items() if turned}


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
            return Header(image.mode in GREY, *image.size)
    except UnidentifiedImageError:
        return "no image"
    except Exception as error:  # Pillow raises anything at a damaged file
        return " ".join(str(error).split())


def _is_rotated(path: Path) -> bool | str:
    """Whether an image lies on its side, or why it cannot be decoded: PNG files may say it at their end."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.getexif().get(ORIENTATION) in ROTATED
    except Exception as error:  # Pillow raises anything at a damaged file
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
    except Exception as error:  # Pillow raises anything at a damaged file
        return " ".join(str(error).split())
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
