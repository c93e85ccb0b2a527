"""Decoded images on disk: one caller decodes them, and every caller maps the same file into memory.

Decoding takes minutes, and several runs may need it at once, as threads of one process or as processes. A file lock
lets one of them decode while the others wait. The array is written under a unique temporary name, flushed to the disk
and then renamed, so a file under its final name is complete, even if a decoder was interrupted or killed. A CRC-32 at
its end tells a file that was damaged later.
"""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar
from uuid import uuid4

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.npy import ArrayHeader, read_header

Pixels = NDArray[np.uint8]
Progress = Callable[[int, int], None]
Result = TypeVar("Result")

BLOCK_SIZE = 512  # images
BLOCK_BYTES = 2**28  # that decoding them takes
CHECKSUM_BYTES = 4
CHUNK = 2**22  # bytes
POLL_SECONDS = 0.2  # between two looks at how far another decoder is


def decode_once(
    folders: Sequence[Path],
    group: str,
    key: str,
    count: int,
    decode: Callable[[], Iterable[Pixels]],
    progress: Progress | None = None,
) -> Pixels:
    """The images of ``key`` as uint8 [count, channels, height, width], from the first of ``folders`` that holds them.

    Where none does, ``decode()`` yields them in blocks of samples, and they are stored as ``<group>-<key>.npy`` in the
    first folder that can be written to. A file of the same group with another key is out of date and removed. The
    result is copy-on-write. ``progress(done, count)`` follows the decoding, also while another caller does it.
    """
    name = f"{group}-{key}.npy"
    for folder in folders:
        if (images := _load(folder / name, count)) is not None:
            return images
    folder = _first_writable(folders)
    target = folder / name
    with _locked(folder / f"{group}.lock", lambda: _report(target, count, progress)):
        images = _load(target, count)  # another caller may have decoded them meanwhile
        if images is None:
            _remove(folder.glob(f"{group}-*.part"))  # of decoders that were killed: whoever writes holds the lock
            _store(target, count, decode(), progress)
            _remove(path for path in folder.glob(f"{group}-*.npy") if path != target)
            images = _load(target, count)
    if images is None:
        raise SnclError(f"the decoded images in {target} cannot be read back; delete the file and run again")
    return images


def in_blocks(
    function: Callable[[Path], Result], paths: Sequence[Path], costs: Sequence[int] | None = None
) -> Iterator[list[Result]]:
    """The function of each path, in blocks, on all cores: Pillow decodes without holding Python's interpreter lock.

    ``costs`` are the bytes that each path takes meanwhile; a block of several paths takes at most ``BLOCK_BYTES``.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        for block in _blocks(paths, costs or [0] * len(paths)):
            yield list(pool.map(function, block))


def _blocks(paths: Sequence[Path], costs: Sequence[int]) -> Iterator[list[Path]]:
    block: list[Path] = []
    taken = 0
    for path, cost in zip(paths, costs, strict=True):
        if block and (len(block) == BLOCK_SIZE or taken + cost > BLOCK_BYTES):
            yield block
            block, taken = [], 0
        block.append(path)
        taken += cost
    if block:
        yield block


def _load(path: Path, count: int) -> Pixels | None:
    """The array at this path, unless it is missing, damaged or of another kind."""
    try:
        with path.open("rb") as file:
            header = read_header(file)
            plain = header.dtype == np.uint8 and len(header.shape) == 4 and not header.fortran
            if not plain or not header.nbytes or header.shape[0] != count or not _is_intact(file, header):
                return None
        return np.memmap(path, np.uint8, "c", header.start, header.shape)
    except (OSError, ValueError):
        return None


def _is_intact(file: IO[bytes], header: ArrayHeader) -> bool:
    """Whether a file has the length that its header says, and the checksum that it ends with."""
    left = header.start + header.nbytes
    if os.fstat(file.fileno()).st_size != left + CHECKSUM_BYTES:
        return False
    file.seek(0)
    found = 0
    while left and (chunk := file.read(min(left, CHUNK))):
        found, left = zlib.crc32(chunk, found), left - len(chunk)
    return file.read() == found.to_bytes(CHECKSUM_BYTES, "little")


def _first_writable(folders: Sequence[Path]) -> Path:
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    places = " nor in ".join(map(str, folders))
    raise SnclError(f"decoded images cannot be stored in {places}; make room there, or set SNCL_DATA to another folder")


@contextmanager
def _locked(path: Path, while_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at this path, against other processes and other threads of this one."""
    lock = FileLock(path)  # one object a caller: two objects exclude each other even within a process
    while True:
        try:
            lock.acquire(timeout=POLL_SECONDS)
            break
        except Timeout:
            while_waiting()
        except OSError as error:
            raise _unstorable(path.parent, error) from error
    try:
        yield
    finally:
        lock.release()


def _store(target: Path, count: int, blocks: Iterable[Pixels], progress: Progress | None) -> None:
    """Write all blocks into one array file that gets its name once it is complete."""
    partial = target.with_name(f"{target.name}.{uuid4().hex}.part")
    done = checksum = 0
    try:
        with partial.open("xb") as file:
            for block in blocks:
                content = block.tobytes() if done else _array_header((count, *block.shape[1:])) + block.tobytes()
                checksum = zlib.crc32(content, checksum)
                file.write(content)
                file.flush()
                done += len(block)
                if progress is not None:
                    progress(done, count)
            file.write(checksum.to_bytes(CHECKSUM_BYTES, "little"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        raise _unstorable(target.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _array_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


def _report(target: Path, count: int, progress: Progress | None) -> None:
    """Say how far the caller is that holds the lock, by the size of its unfinished file."""
    if progress is not None:
        progress(max((_written(path) for path in target.parent.glob(f"{target.name}.*.part")), default=0), count)


def _written(partial: Path) -> int:
    """Complete samples in an unfinished file; 0 where it cannot be told yet, or any more."""
    try:
        with partial.open("rb") as file:
            header = read_header(file)
            return (os.fstat(file.fileno()).st_size - header.start) // math.prod(header.shape[1:])
    except (OSError, ValueError, ZeroDivisionError):
        return 0


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # on some systems a file that is mapped cannot be removed
            path.unlink()


def _unstorable(folder: Path, error: OSError) -> SnclError:
    return SnclError(f"the decoded images cannot be stored in {folder} ({error.strerror or error}); make room there")
