"""The log of a run: one JSON object per line, which follows the checkpoint."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sncl.errors import SnclError
from sncl.training.checkpoint import sync_names

LOG = "log.jsonl"


class Log:
    """The file, cut back to the ``length`` that the checkpoint knows of."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        try:
            self.file = path.open("ab")
            self.file.truncate(min(length, self.length()))  # never longer: that would fill it up with zeros
            sync_names(path.parent)  # a checkpoint that knows of the log is never there without it
        except OSError as error:
            raise SnclError(f"cannot write {path}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()

    def write(self, **entry: Any) -> None:
        """Append one entry."""
        self.file.write((json.dumps(entry, separators=(",", ":")) + "\n").encode())

    def last(self, event: str) -> dict[str, Any]:
        """The last entry of this kind; an empty one where there is none."""
        self.file.flush()
        for line in reversed(self.path.read_bytes().splitlines()):
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") == event:
                    return entry
        return {}

    def length(self) -> int:
        """How many bytes are safely stored; the file's position says something else after a truncation."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return os.fstat(self.file.fileno()).st_size


class NoLog(Log):
    """The log of a process that leaves writing to another."""

    def __init__(self) -> None:
        """Nothing is opened."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is open."""

    def write(self, **entry: Any) -> None:
        """Nothing is written."""

    def last(self, event: str) -> dict[str, Any]:
        return {}

    def length(self) -> int:
        return 0
