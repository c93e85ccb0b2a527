"""CIFAR-10 from its binary or its Python version; both hold the same images and give the same tensors.

The Python version is pickled, and a pickle can run code. It is read by an unpickler that knows nothing but what numpy
arrays consist of, so a tampered file is an error and never a program.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sncl.streams.datasets.images import Images, broken, contents

BINARY, PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
EXPECTED = f"{BINARY}/data_batch_1.bin ... data_batch_5.bin, test_batch.bin (or the Python version in {PICKLED}/)"
CLASSES = 10
PIXELS = 3 * 32 * 32
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),  # before numpy 2
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}

Bytes = NDArray[np.uint8]


def find(root: Path) -> Path | None:
    """The folder of the first version that is complete."""
    for folder, ending in ((root / BINARY, ".bin"), (root / PICKLED, "")):
        if all((folder / f"{name}{ending}").is_file() for name in (*TRAIN, *TEST)):
            return folder
    return None


def read(folder: Path) -> Images:
    one, ending = (_binary, ".bin") if folder.name == BINARY else (_pickled, "")
    return Images(*_join(folder, one, ending, TRAIN), *_join(folder, one, ending, TEST))


def _join(
    folder: Path, one: Callable[[Path], tuple[Bytes, Bytes]], ending: str, names: tuple[str, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
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
        batch = _ArraysOnly(io.BytesIO(contents(path)), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise broken(path, f"is not a pickled CIFAR-10 batch ({error})") from error
    entries = batch if isinstance(batch, dict) else {}
    pixels, labels = entries.get(b"data"), entries.get(b"labels")
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (PIXELS,)):
        raise broken(path, f"holds no 'data' of bytes with {PIXELS} columns")
    if not (isinstance(labels, list) and len(labels) == len(pixels) and all(isinstance(y, int) for y in labels)):
        raise broken(path, "holds no list 'labels' with one number for each image")
    return pixels, _checked(path, np.array(labels))


def _checked(path: Path, labels: NDArray[np.integer]) -> Bytes:
    if len(labels) and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise broken(path, f"holds labels from {labels.min()} to {labels.max()}, but classes are 0 to {CLASSES - 1}")
    return labels.astype(np.uint8)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return super().find_class(module, name)
