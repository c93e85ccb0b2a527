"""What every reader of a data set returns, and how it reads a file and names a broken one."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sncl.errors import SnclError


class Images(NamedTuple):
    """A data set: uint8 images [samples, channels, height, width] and int64 labels [samples], to train and to test."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def contents(path: Path) -> bytes:
    """The bytes of a file, unpacked where its name ends in ``.gz``."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise broken(path, f"cannot be read ({error})") from error


def broken(path: Path, what: str) -> SnclError:
    return SnclError(f"The file {path} {what}; delete it and fetch or copy the data set again.")
