"""Tiny ImageNet from its folder of JPEG files, decoded once into arrays that are then mapped into memory.

The labels are the order of ``wnids.txt``; the official validation set is the test set, because the official test set
has no labels. The arrays lie in ``sncl-cache`` next to the images (:mod:`sncl.streams.cache`); their names follow from
the names of the files and their labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sncl.errors import SnclError
from sncl.streams.cache import Pixels, Progress, decode_once, in_blocks
from sncl.streams.datasets.images import Images, broken, contents

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "tiny-imagenet-200"
EXPECTED = f"{FOLDER}/ with wnids.txt, train/<wnid>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt"
CLASSES = 200
CACHE = "sncl-cache"
SIDE = 64


def find(root: Path) -> Path | None:
    """The folder, if it has its lists of classes and labels; images are checked when they are decoded."""
    folder = root / FOLDER
    lists = (folder / "wnids.txt", folder / "val" / "val_annotations.txt")
    return folder if all(path.is_file() for path in lists) and (folder / "train").is_dir() else None


def files(folder: Path) -> list[Path]:
    """What is read: the lists, the folders of images for the names in them, and what was decoded."""
    lists = [folder / "wnids.txt", folder / "val" / "val_annotations.txt", folder / "val" / "images"]
    return [*lists, *sorted((folder / "train").glob("*/images")), *sorted((folder / CACHE).glob("*.npy"))]


def read(folder: Path, progress: Progress | None = None) -> Images:
    """Images and labels of both splits; the first call decodes them, later calls map the result."""
    train, test = _train_files(folder), _val_files(folder)
    train_x = _decoded(folder, "train", train, progress)
    return Images(train_x, _labels(train), _decoded(folder, "val", test, progress), _labels(test))


def _wnids(folder: Path) -> list[str]:
    return _text(folder / "wnids.txt").split()


def _text(path: Path) -> str:
    try:
        return contents(path).decode()
    except UnicodeDecodeError as error:
        raise broken(path, "is no text in UTF-8") from error


def _train_files(folder: Path) -> list[tuple[Path, int]]:
    """Class by class, files in the order of their number."""
    try:
        files = [
            (path, label)
            for label, wnid in enumerate(_wnids(folder))
            for path in sorted((folder / "train" / wnid / "images").glob("*.JPEG"), key=lambda path: _number(path.name))
        ]
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise broken(folder / "wnids.txt", f"names a class that cannot be looked for ({error})") from error
    if not files:
        raise broken(folder / "train", "holds no images")
    return files


def _val_files(folder: Path) -> list[tuple[Path, int]]:
    label = {wnid: number for number, wnid in enumerate(_wnids(folder))}
    path = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in _text(path).splitlines() if line]
    if not lines or any(len(line) < 2 or line[1] not in label for line in lines):
        raise broken(path, "does not give a file and a class of wnids.txt on every line")
    return [(folder / "val" / "images" / line[0], label[line[1]]) for line in lines]


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("_")[2].partition(".")[0]
    return (int(digits) if digits.isdigit() else -1, name)


def _labels(files: Sequence[tuple[Path, int]]) -> Tensor:
    import torch

    return torch.tensor([label for _, label in files])


def _decoded(folder: Path, split: str, files: Sequence[tuple[Path, int]], progress: Progress | None) -> Tensor:
    import torch

    paths = [path for path, _ in files]

    def decode() -> Iterator[Pixels]:
        for images in in_blocks(_pixels, paths):
            yield np.stack(images).transpose(0, 3, 1, 2)

    names = json.dumps([[path.name, label] for path, label in files])
    key = hashlib.sha256(names.encode()).hexdigest()[:32]
    return torch.from_numpy(decode_once([folder / CACHE], split, key, len(paths), decode, progress))


def _pixels(path: Path) -> Pixels:
    """One image [height, width, 3]; grey ones become three equal channels."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.size != (SIDE, SIDE):
                width, height = image.size
                raise broken(path, f"is an image of {width} x {height} pixels instead of {SIDE} x {SIDE}")
            return np.asarray(image.convert("RGB"))
    except SnclError:
        raise
    except Exception as error:  # a damaged image can raise anything
        raise broken(path, f"is not an image that can be decoded ({error})") from error
