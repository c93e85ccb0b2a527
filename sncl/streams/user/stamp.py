"""Whether the user's files are as they were, by their names, sizes and times; no file is read, no torch is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator

from sncl.errors import SnclError
from sncl.streams.user.spec import DataSpec
from sncl.tables.reading import table_files

DEEPEST = 4  # PATH/train/<domain>/<class>/image
SETTLED = 2 * 10**9  # ns: within so much, a file may change twice and keep its times


def stamp_of_files(spec: DataSpec) -> str | None:
    """A hash of what the files system says of everything that is read: while it stays, so do the data.

    None where nothing can be said: a file is missing, or changed a moment ago. Another stamp says nothing either:
    copied files have another, and the same content.
    """
    settled = time.time_ns() - SETTLED
    digest = hashlib.sha256()
    try:
        for name, facts in sorted(read_from(spec)):
            if facts and facts[0] > settled:
                return None
            digest.update(json.dumps([name, *facts]).encode())
    except (OSError, SnclError):
        return None
    return digest.hexdigest()


def read_from(spec: DataSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every file that is read, with what is known of it, and every folder that it may lie in."""
    if spec.form == "folder":
        yield from below(str(spec.path), DEEPEST)
        return
    files = table_files(spec.path) if spec.form == "table" else [spec.path]
    yield from ((str(path), known_of(path.stat())) for path in files if path is not None)


def below(folder: str, depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What lies in a folder, as deep as images are looked for; hidden files are not read."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.is_dir():
                yield entry.path, known_of(entry.stat())
            elif depth > 1:
                yield entry.path, ()
                yield from below(entry.path, depth - 1)


def known_of(facts: os.stat_result) -> tuple[int, ...]:
    """What changes with the content of a file; its last change first."""
    return facts.st_ctime_ns, facts.st_mtime_ns, facts.st_size, facts.st_ino
