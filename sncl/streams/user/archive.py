"""The arrays of a .npz file, each read when it is asked for, and not before its header says that there is room."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.npy import ArrayHeader, read_header
from sncl.tensors.room import require_memory

Arrays = dict[str, NDArray[Any]]

SUFFIX = ".npy"
CHUNK = 2**24  # bytes
BYTES_A_LABEL = 100  # as text, in arrays and in lists
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError)


def array_names(path: Path) -> list[str]:
    """The names of the arrays in a file, without reading them."""
    with _opened(path) as file:
        return list(dict.fromkeys(name.removesuffix(SUFFIX) for name in file.namelist()))


def read_arrays(path: Path, names: tuple[str, ...]) -> Arrays:
    """The arrays of these names; those that were read last are kept, for the runs of many seeds."""
    stamp = path.stat()
    return _arrays(path, stamp.st_mtime_ns, stamp.st_size, names)


@lru_cache(maxsize=1)
def _arrays(path: Path, modified: int, size: int, names: tuple[str, ...]) -> Arrays:
    with _opened(path) as file:
        members = {name: _member(file, name) for name in names}
        headers = {name: _header(path, file, name, member) for name, member in members.items()}
        require_memory(
            sum(map(_needed, headers.values())), f"{path}: {', '.join(names)}", "leave out rows, or store less in a row"
        )
        return {name: _values(path, file, name, members[name]) for name in names}


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        if not zipfile.is_zipfile(path):
            raise SnclError(f"{path} is no .npz file, such as numpy.savez writes")
        with zipfile.ZipFile(path) as file:
            yield file
    except UNREADABLE as error:
        raise SnclError(f"{path} cannot be read as a .npz file ({error})") from error


def _member(file: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    return file.getinfo(name + SUFFIX if name + SUFFIX in file.namelist() else name)


def _header(path: Path, file: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> ArrayHeader:
    """What an array will be; one that is said to be longer than its part of the file is cut short."""
    with file.open(member) as stream, _named(path, name):
        header = read_header(stream)
        if member.file_size < header.start + header.nbytes:
            present = member.file_size - header.start
            raise ValueError(f"is cut short: it has {max(present, 0)} of {header.nbytes} bytes")
        return header


def _values(path: Path, file: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> NDArray[Any]:
    with file.open(member) as stream, _named(path, name):
        header = read_header(stream)
        values = bytearray()  # which, unlike bytes, an array may write to
        while chunk := stream.read(min(CHUNK, header.nbytes - len(values))):
            values += chunk
        if stream.read(1):  # at the end of the file its checksum is compared
            raise ValueError(f"has more than the {header.nbytes} bytes that its header promises")
        return header.array(values)


@contextmanager
def _named(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SnclError(f"{path}: the array {name!r} {error}") from error


def _needed(header: ArrayHeader) -> int:
    """Memory for an array and for what is made of it: texts of labels, numbers, pixels."""
    axes, floating = len(header.shape), header.dtype.kind == "f"
    made = BYTES_A_LABEL + 2 * header.dtype.itemsize if axes < 2 else 8 if axes == 2 else 4 if floating else 1
    return header.nbytes + 2 * made * math.prod(header.shape)  # of all samples, and of those that are chosen
