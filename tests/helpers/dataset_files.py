"""The files of the data sets as their authors publish them, written byte by byte. Used by many tests."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RANDOM = np.random.default_rng(0)
Bytes = NDArray[np.uint8]
CIFAR_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def idx(values: Bytes) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_mnist(folder: Path, zipped: bool = False) -> dict[str, Bytes]:
    """Seven images to learn and three to test on, of noise."""
    arrays = {
        "train-images-idx3-ubyte": RANDOM.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.array([0, 1, 2, 3, 4, 5, 9], dtype=np.uint8),
        "t10k-images-idx3-ubyte": RANDOM.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([3, 2, 1], dtype=np.uint8),
    }
    write_idx(folder, arrays, zipped)
    return arrays


def write_idx(folder: Path, arrays: dict[str, Bytes], zipped: bool = False) -> None:
    """Each array as a file of MNIST's format."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        data = idx(values)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(data) if zipped else data)


def write_cifar(root: Path, protocol: int = 2) -> tuple[Path, Path]:
    """The same images as binary and as Python version, each under a root of its own."""
    binary, pickled = root / "a" / "cifar-10-batches-bin", root / "b" / "cifar-10-batches-py"
    for folder in (binary, pickled):
        folder.mkdir(parents=True)
    for name in CIFAR_FILES:
        pixels = RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8)
        labels = RANDOM.integers(0, 10, 4, dtype=np.uint8)
        (binary / f"{name}.bin").write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
        batch = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"x"}
        (pickled / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return binary, pickled


def write_tiny(root: Path) -> Path:
    """Two classes of the 200, in an order that is not the alphabet's; files saved as JPEG, one of them grey."""
    folder = root / "tiny-imagenet-200"
    val = folder / "val" / "images"
    val.mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    for wnid, colour in (("n01", (250, 0, 0)), ("n02", (0, 0, 250))):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for number in (10, 2, 0):
            Image.new("RGB", (64, 64), (colour[0], number * 10, colour[2])).save(
                images / f"{wnid}_{number}.JPEG", quality=95
            )
    Image.new("L", (64, 64), 77).save(folder / "train" / "n01" / "images" / "n01_11.JPEG", quality=95)
    Image.new("RGB", (64, 64), (9, 99, 199)).save(val / "val_0.JPEG", quality=95)
    Image.new("RGB", (64, 64), (199, 99, 9)).save(val / "val_1.JPEG", quality=95)
    (folder / "val" / "val_annotations.txt").write_text("val_1.JPEG\tn01\t0\t0\t1\t1\nval_0.JPEG\tn02\t0\t0\t1\t1\n")
    return folder
