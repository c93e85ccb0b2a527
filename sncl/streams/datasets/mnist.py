"""MNIST from its four IDX files, plain or gzipped: a magic number, the counts, then one byte per pixel or label."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from sncl.streams.datasets.images import Images, broken, contents

if TYPE_CHECKING:
    from torch import Tensor

FOLDERS = ("MNIST/raw", "mnist", "MNIST", ".")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
EXPECTED = f"{', '.join(FILES)} (or the same with .gz) in MNIST/raw"
CLASSES = 10


def find(root: Path) -> Path | None:
    """The first folder that holds all four files."""
    folders = (root / folder for folder in FOLDERS)
    return next((folder for folder in folders if all(_file(folder, name) for name in FILES)), None)


def files(folder: Path) -> list[Path]:
    """What is read."""
    return [_file(folder, name) or folder / name for name in FILES]


def read(folder: Path) -> Images:
    paths = files(folder)
    train_x, train_y, test_x, test_y = (_idx(path, axes) for path, axes in zip(paths, (3, 1, 3, 1), strict=True))
    for path, x, y in ((paths[1], train_x, train_y), (paths[3], test_x, test_y)):
        if len(x) != len(y):
            raise broken(path, f"holds {len(y)} labels for {len(x)} images")
        if len(y) and int(y.max()) >= CLASSES:
            raise broken(path, f"holds the label {int(y.max())}, but digits are 0 to 9")
    return Images(train_x[:, None], train_y.long(), test_x[:, None], test_y.long())


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _idx(path: Path, axes: int) -> Tensor:
    """One IDX file of unsigned bytes with this many axes."""
    import numpy as np
    import torch

    data = contents(path)
    header = 4 + 4 * axes
    if len(data) < header or data[:4] != bytes((0, 0, 8, axes)):
        raise broken(path, f"is not an IDX file of bytes with {axes} axes")
    shape = struct.unpack(f">{axes}I", data[4:header])
    size = int(np.prod(shape, dtype=np.int64))
    if len(data) != header + size:
        raise broken(path, f"holds {len(data) - header} bytes of data where its header promises {size}")
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape).copy())
