"""What every reader of a data set returns, and how it reads a file and names a broken one."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sncl.errors import SnclError

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 2**28  # the largest official file has 47 million


class Images(NamedTuple):
    """A data set: uint8 images [samples, channels, height, width] and int64 labels [samples], to train and to test."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def contents(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file, unpacked where its name ends in ``.gz``; no file of a data set has more than ``most``."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise broken(path, f"cannot be read ({error})") from error
    if len(data) > most:
        raise broken(path, f"has more than {most} bytes")
    return data


def broken(path: Path, what: str) -> SnclError:
    return SnclError(f"The file {path} {what}; delete it and fetch or copy the data set again.")
