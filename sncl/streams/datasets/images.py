"""What every reader of a data set hands back, and how files are read, with broken ones named, and written whole."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from torch import Tensor

from sncl.errors import SnclError


class Images(NamedTuple):
    """A data set: uint8 images [rows, channels, height, width] and int64 labels [rows], to learn from and to test."""

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


@contextmanager
def complete(target: Path) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name when it is complete, and not at all otherwise.

    Until then it has another name for each process, so that two that decode at once do not write into one file.
    """
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
