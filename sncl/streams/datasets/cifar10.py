"""CIFAR-10 from its binary or its Python version; both hold the same images and give the same tensors.

The Python version is pickled, and a pickle can run code. It is read as data
(:mod:`sncl.streams.datasets.pickled`), so a tampered file is an error and never a program.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sncl.streams.datasets.images import Images, broken, contents
from sncl.streams.datasets.pickled import array_of_bytes, read_pickle

if TYPE_CHECKING:
    from torch import Tensor

BINARY, PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
EXPECTED = f"{BINARY}/data_batch_1.bin ... data_batch_5.bin, test_batch.bin (or the Python version in {PICKLED}/)"
CLASSES = 10
PIXELS = 3 * 32 * 32
MOST_LABEL = 2**31  # a label beyond is no number that could be named in an error

Bytes = NDArray[np.uint8]


def find(root: Path) -> Path | None:
    """The folder of the first version that is complete."""
    for folder, ending in ((root / BINARY, ".bin"), (root / PICKLED, "")):
        if all((folder / f"{name}{ending}").is_file() for name in (*TRAIN, *TEST)):
            return folder
    return None


def files(folder: Path) -> list[Path]:
    """What is read."""
    ending = ".bin" if folder.name == BINARY else ""
    return [folder / f"{name}{ending}" for name in (*TRAIN, *TEST)]


def read(folder: Path) -> Images:
    one, ending = (_binary, ".bin") if folder.name == BINARY else (_pickled, "")
    return Images(*_join(folder, one, ending, TRAIN), *_join(folder, one, ending, TEST))


def _join(
    folder: Path, one: Callable[[Path], tuple[Bytes, Bytes]], ending: str, names: tuple[str, ...]
) -> tuple[Tensor, Tensor]:
    import torch

    pixels, labels = zip(*(one(folder / f"{name}{ending}") for name in names), strict=True)
    x = torch.from_numpy(np.concatenate(pixels)).reshape(-1, 3, 32, 32)
    return x, torch.from_numpy(np.concatenate(labels)).long()


def _binary(path: Path) -> tuple[Bytes, Bytes]:
    """Records of one label byte and 3072 pixels: red, green, blue plane."""
    data = np.frombuffer(contents(path), dtype=np.uint8)
    if len(data) == 0 or len(data) % (1 + PIXELS):
        raise broken(path, f"has {len(data)} bytes, which is not a whole number of records of {1 + PIXELS}")
    records = data.reshape(-1, 1 + PIXELS)
    return records[:, 1:], _checked(path, records[:, 0])


def _pickled(path: Path) -> tuple[Bytes, Bytes]:
    try:
        batch = read_pickle(contents(path))
    except ValueError as error:
        raise broken(path, f"is not a pickled CIFAR-10 batch ({error})") from error
    entries = batch if isinstance(batch, dict) else {}
    pixels, labels = array_of_bytes(entries.get(b"data")), entries.get(b"labels")
    if pixels is None or pixels.shape[1] != PIXELS:
        raise broken(path, f"holds no 'data' of bytes with {PIXELS} columns")
    if not (isinstance(labels, list) and len(labels) == len(pixels) and all(map(_is_label, labels))):
        raise broken(path, "holds no list 'labels' with one number for each image")
    return pixels, _checked(path, np.array(labels, dtype=np.int64))


def _is_label(value: object) -> bool:
    return isinstance(value, int) and abs(value) < MOST_LABEL


def _checked(path: Path, labels: NDArray[np.integer]) -> Bytes:
    if len(labels) and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise broken(path, f"holds labels from {labels.min()} to {labels.max()}, but classes are 0 to {CLASSES - 1}")
    return labels.astype(np.uint8)
