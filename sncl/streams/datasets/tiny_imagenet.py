"""Tiny ImageNet from its folder of JPEG files, decoded once into arrays that are then mapped into memory.

The labels are the order of ``wnids.txt``; the official validation set is the test set, because the official test set
has no labels. The arrays lie in ``sncl-cache`` next to the images. Each is written under another name and renamed
when it is complete, the labels last, so an interrupted decoding leaves nothing that looks like a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.datasets.images import Images, broken, complete, contents

FOLDER = "tiny-imagenet-200"
EXPECTED = f"{FOLDER}/ with wnids.txt, train/<wnid>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt"
CLASSES = 200
CACHE = "sncl-cache"
SIDE = 64
DECODED_AT_ONCE = 512

Progress = Callable[[int, int], None]


def find(root: Path) -> Path | None:
    """The folder, where its lists are there; the images themselves are looked at when they are decoded."""
    folder = root / FOLDER
    lists = (folder / "wnids.txt", folder / "val" / "val_annotations.txt")
    return folder if all(path.is_file() for path in lists) and (folder / "train").is_dir() else None


def read(folder: Path, progress: Progress | None = None) -> Images:
    """Images and labels of both splits; the first call decodes them, later calls map the result."""
    splits = {"train": _train_files(folder), "val": _val_files(folder)}
    return Images(*(tensor for name, files in splits.items() for tensor in _mapped(folder, name, files, progress)))


def _wnids(folder: Path) -> list[str]:
    return contents(folder / "wnids.txt").decode().split()


def _train_files(folder: Path) -> list[tuple[Path, int]]:
    """Class by class, files in the order of their number."""
    found = [
        (path, label)
        for label, wnid in enumerate(_wnids(folder))
        for path in sorted((folder / "train" / wnid / "images").glob("*.JPEG"), key=lambda path: _number(path.name))
    ]
    if not found:
        raise broken(folder / "train", "holds no images")
    return found


def _val_files(folder: Path) -> list[tuple[Path, int]]:
    label = {wnid: number for number, wnid in enumerate(_wnids(folder))}
    path = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in contents(path).decode().splitlines() if line]
    if not lines or any(len(line) < 2 or line[1] not in label for line in lines):
        raise broken(path, "does not give a file and a class of wnids.txt on every line")
    return [(folder / "val" / "images" / line[0], label[line[1]]) for line in lines]


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("_")[2].partition(".")[0]
    return (int(digits) if digits.isdigit() else -1, name)


def _mapped(
    folder: Path, split: str, files: Sequence[tuple[Path, int]], progress: Progress | None
) -> tuple[Tensor, Tensor]:
    images, labels = (folder / CACHE / f"{split}-{part}.npy" for part in ("images", "labels"))
    y = np.array([label for _, label in files], dtype=np.int64)
    x = _cached(images, labels, y)
    if x is None:
        try:
            images.parent.mkdir(exist_ok=True)
            labels.unlink(missing_ok=True)
            _decode([path for path, _ in files], images, progress)
            with complete(labels) as file:
                np.save(file, y)
        except OSError as error:
            raise SnclError(
                f"The decoded images cannot be stored in {images.parent} ({error}); make room there, or copy "
                f"{FOLDER} to a folder that can be written to."
            ) from error
        x = np.load(images, mmap_mode="c")
    return torch.from_numpy(x), torch.from_numpy(y)


def _cached(images: Path, labels: Path, y: NDArray[np.int64]) -> NDArray[np.uint8] | None:
    """The decoded images, unless they are missing, cut short or belong to another list of files."""
    try:
        x: NDArray[np.uint8] = np.load(images, mmap_mode="c")
        known = np.load(labels)
    except (OSError, ValueError, EOFError):
        return None
    fits = x.shape == (len(y), 3, SIDE, SIDE) and x.dtype == np.uint8 and np.array_equal(known, y)
    return x if fits else None


def _decode(paths: Sequence[Path], target: Path, progress: Progress | None) -> None:
    """Decode all files into one array on disk, a few hundred at a time on all cores."""
    from concurrent.futures import ThreadPoolExecutor

    header = {"descr": "|u1", "fortran_order": False, "shape": (len(paths), 3, SIDE, SIDE)}
    with complete(target) as file, ThreadPoolExecutor() as pool:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(paths), DECODED_AT_ONCE):
            images = list(pool.map(_pixels, paths[start : start + DECODED_AT_ONCE]))
            file.write(np.stack(images).transpose(0, 3, 1, 2).tobytes())
            if progress is not None:
                progress(start + len(images), len(paths))


def _pixels(path: Path) -> NDArray[np.uint8]:
    """One image [height, width, 3]; grey ones become three equal channels."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise broken(path, f"is not an image that can be decoded ({error})") from error
    if pixels.shape != (SIDE, SIDE, 3):
        raise broken(path, f"is an image of {pixels.shape[1]} x {pixels.shape[0]} pixels instead of {SIDE} x {SIDE}")
    return pixels
