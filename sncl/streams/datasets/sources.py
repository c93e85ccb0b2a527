"""The data sets, by name: uint8 images and labels, read from the files as their authors publish them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sncl.errors import SnclError, nearest, suggestion
from sncl.streams.datasets import cifar10, digits, mnist, tiny_imagenet

if TYPE_CHECKING:  # which files there are is known without torch
    from torch import Tensor

    from sncl.streams.cache import Progress
    from sncl.streams.datasets.images import Images
    from sncl.streams.raw import RawTable

HASHED_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory or (``mapped``) in memory-mapped files.

    Images are uint8 [samples, channels, height, width], labels int64 [samples]. The user's data may also be images of
    floats or numbers [samples, columns]; they have ``names`` for their classes and, where there are domains, the index
    of the domain of each sample and ``domain_names``. A ``table`` is encoded when the order of its rows is known; until
    then its inputs have no columns, unless all of them are numbers.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    mapped: bool = False
    names: tuple[str, ...] = ()
    train_domain: Tensor | None = None
    test_domain: Tensor | None = None
    domain_names: tuple[str, ...] = ()
    table: RawTable | None = None

    def fingerprint(self) -> str:
        """SHA-256 over shapes, images and labels: equal for equal data, wherever and in whatever files it lies."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        if self.names:
            digest.update(json.dumps([self.names, self.domain_names]).encode())
        if self.table is not None and not self.table.numeric:
            digest.update(self.table.digest().encode())
        domains = [each for each in (self.train_domain, self.test_domain) if each is not None]
        for tensor in (self.train_x, self.train_y, self.test_x, self.test_y, *domains):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            for rows in tensor.split(HASHED_AT_ONCE):
                digest.update(rows.contiguous().cpu().numpy().data)
        return digest.hexdigest()


class Reader(NamedTuple):
    """How one data set is found under a root, which files it is read from, how, and what to put there; ``samples`` is
    how many are to train on, as published."""

    find: Callable[[Path], Path | None]
    files: Callable[[Path], list[Path]]
    read: Callable[[Path, Progress | None], Images]
    expected: str
    classes: int
    samples: int
    mapped: bool = False


class Status(NamedTuple):
    """Whether a data set is present, where it is or would be, and what it consists of."""

    name: str
    present: bool
    path: str
    detail: str


READERS = {
    "mnist": Reader(mnist.find, mnist.files, lambda path, _: mnist.read(path), mnist.EXPECTED, mnist.CLASSES, 60_000),
    "cifar10": Reader(
        cifar10.find, cifar10.files, lambda path, _: cifar10.read(path), cifar10.EXPECTED, cifar10.CLASSES, 50_000
    ),
    "tiny-imagenet": Reader(
        tiny_imagenet.find,
        tiny_imagenet.files,
        tiny_imagenet.read,
        tiny_imagenet.EXPECTED,
        tiny_imagenet.CLASSES,
        100_000,
        mapped=True,
    ),
    "digits": Reader(
        digits.find, digits.files, lambda path, _: digits.read(path), digits.EXPECTED, digits.CLASSES, 1_437
    ),
}


def data_root(given: Path | None = None) -> Path:
    """The folder the data sets lie in: the one given, else SNCL_DATA, else the user's cache folder."""
    if given is not None:
        return Path(given)
    from_environment = os.environ.get("SNCL_DATA")
    if from_environment:
        return Path(from_environment)
    from platformdirs import user_cache_path

    return user_cache_path("sncl")


def load(name: str, root: Path, progress: Progress | None = None) -> Dataset:
    """The data set of this name under ``root``; ``progress(done, all)`` follows a decoding that takes minutes."""
    if name not in READERS:
        near = suggestion(nearest(name, READERS))
        raise SnclError(f"There is no data set '{name}'; {near}the known ones are {', '.join(READERS)}.")
    reader = READERS[name]
    path = reader.find(root)
    if path is None:
        raise SnclError(_missing(name, reader, root))
    return Dataset(name, *reader.read(path, progress), classes=reader.classes, mapped=reader.mapped)


def file_stamp(name: str, root: Path) -> str | None:
    """A hash of the sizes and times of a data set's files: while it stays, so do the data. None where there are none.

    Another stamp says nothing: copied files have another, and the same content.
    """
    folder = READERS[name].find(root)
    if folder is None:
        return None
    try:
        files = [(path, path.stat()) for path in READERS[name].files(folder)]
    except OSError:
        return None
    facts = [
        [path.relative_to(folder).as_posix(), f.st_size, f.st_mtime_ns, f.st_ctime_ns, f.st_ino] for path, f in files
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@lru_cache(maxsize=len(READERS))
def fingerprint_at(name: str, root: Path, stamp: str) -> str:
    """The fingerprint of the data set under ``root``, read once for each ``stamp`` of its files."""
    return load(name, root).fingerprint()


def inventory(root: Path) -> list[Status]:
    """Which data sets are present, by looking for their files only."""
    paths = {name: reader.find(root) for name, reader in READERS.items()}
    return [
        Status(name, path is not None, str(path or root), "found" if path else f"expects {READERS[name].expected}")
        for name, path in paths.items()
    ]


def _missing(name: str, reader: Reader, root: Path) -> str:
    if name == "digits":
        return digits.MISSING
    return (
        f"The data set '{name}' is not in {root}: it needs {reader.expected} there, so run 'sncl data fetch {name}', "
        "or name the folder that has it with `data` or the variable SNCL_DATA."
    )
