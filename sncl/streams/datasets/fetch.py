"""Fetching the data sets from where their authors publish them, or from a mirror with the same file names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from sncl.errors import SnclError, nearest, suggestion
from sncl.streams.datasets.download import TransferProgress, download
from sncl.streams.datasets.sources import READERS
from sncl.streams.datasets.unpack import unpack


@dataclass(frozen=True)
class Remote:
    """One file to fetch; its name is the last part of its address."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def at(self, mirror: str | None) -> str:
        return self.url if mirror is None else f"{mirror.rstrip('/')}/{self.name}"


@dataclass(frozen=True)
class Package:
    """A data set to fetch: files that go into ``folder`` as they are, or archives that unpack to it."""

    files: tuple[Remote, ...]
    kind: Literal["files", "tar", "zip"]
    folder: str


PACKAGES: dict[str, Package] = {
    "mnist": Package(
        tuple(
            Remote(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", md5)
            for name, md5 in (
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
        "files",
        "MNIST/raw",
    ),
    "cifar10": Package(
        (
            Remote(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530",
            ),
        ),
        "tar",
        "cifar-10-batches-bin",
    ),
    "tiny-imagenet": Package(
        (Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        "zip",
        "tiny-imagenet-200",
    ),
}


def fetch(
    name: str,
    root: Path,
    mirror: str | None = None,
    progress: TransferProgress | None = None,
    packages: Mapping[str, Package] = PACKAGES,
) -> list[Path]:
    """Put the data set under ``root`` and say where: its files, or the folder it was unpacked to.

    Data that is already there is left alone, and two processes do not fetch the same at once. ``mirror`` replaces the
    address up to the file name; ``progress(file, bytes so far, bytes in all)`` follows the transfer.
    """
    if name not in packages:
        near = suggestion(nearest(name, packages))
        raise SnclError(f"There is nothing to fetch for '{name}'; {near}what can be fetched is {', '.join(packages)}.")
    present = READERS[name].find(root)
    if present is not None:
        return [present]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{name}.lock", timeout=0):
            present = READERS[name].find(root)  # again: another process may have fetched it meanwhile
            return [present] if present is not None else _fetch(packages[name], root, mirror, progress)
    except Timeout as error:
        raise SnclError(f"Another process is fetching {name} to {root}; wait for it.") from error
    except OSError as error:
        raise SnclError(f"{name} cannot be fetched to {root}: {error.strerror or error}") from error


def _fetch(package: Package, root: Path, mirror: str | None, progress: TransferProgress | None) -> list[Path]:
    """Fetch a package to where nobody else does."""
    folder = root / package.folder
    if package.kind == "files":
        for remote in package.files:
            download(remote.at(mirror), folder / remote.name, remote.md5, progress)
        return [folder / remote.name for remote in package.files]
    if folder.exists():
        raise SnclError(f"The folder {folder} is there but incomplete; move it away and run the same command again.")
    for remote in package.files:
        archive = root / remote.name
        download(remote.at(mirror), archive, remote.md5, progress)
        unpack(archive, package.kind, folder)
        archive.unlink()
    return [folder]
