"""A file that one process at a time writes, whatever name it goes by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sncl.errors import SnclError
from sncl.training.checkpoint import make_folder, remove_parts


def real_file(path: Path) -> Path:
    """The file itself, of which every other name is a link: there is one lock for all of them."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise SnclError(f"cannot write {path}: {error}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from following with the same file, and clear away what a killed one had begun to write."""
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, thread_local=False)  # closed by any thread
    try:
        make_folder(path.parent)
        lock.acquire()
        remove_parts(path.parent, re.escape(path.name))
    except Timeout as error:
        raise SnclError(f"another process follows a stream with {path}; wait for it or name another file") from error
    except OSError as error:
        raise SnclError(f"cannot write beside {path}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
