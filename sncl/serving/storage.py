"""The snapshot of a server: the model, what waits for labels, and how far the journal is in it, as one file.

It is what ``save`` of the model writes, and a little more, so that ``load`` of an estimator reads it too.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout

from sncl.errors import SnclError
from sncl.serving.journal import read_records, segments
from sncl.serving.ledger import Ledger
from sncl.serving.models import ServedModel
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import (
    UNREADABLE,
    make_folder,
    read_checkpoint,
    remove_parts,
    sync_names,
    write_checkpoint,
)

SERVING = "serving"  # what the description says of the server
WAITING = "serving/waiting"  # predictions that wait for their labels, as lines of JSON in a tensor of bytes
FORMAT = 1


class ServerState(NamedTuple):
    """A model's state and the ledger behind the same record of the journal."""

    tensors: Fields
    description: dict[str, Any]
    ledger: Ledger
    number: int
    learned: int  # rows


class SnapshotFile:
    """The snapshot, which no other server uses meanwhile, and the journal beside it."""

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve()  # one lock for all names of a file
            make_folder(self.path.parent)
            lock = self.path.with_name(f".{self.path.name}.lock")
            self.lock = FileLock(lock, timeout=0, thread_local=False)
            self.lock.acquire()
            remove_parts(self.path.parent, re.escape(self.path.name))
        except Timeout as error:
            raise SnclError(f"another server uses {path}; end it, or name another file with `snapshot`") from error
        except (OSError, RuntimeError) as error:
            raise SnclError(f"cannot write beside {path}: {getattr(error, 'strerror', None) or error}") from error

    def release(self) -> None:
        """Let others use it."""
        self.lock.release()

    def restore(self, model: ServedModel, ledger: Ledger) -> tuple[int, int]:
        """Bring model and ledger to where the snapshot was taken: the last record in it, and the rows learned."""
        if not self.path.exists():
            if left := segments(self.path):
                raise SnclError(f"{left[0]} is there without its snapshot {self.path.name}; move it away to start over")
            return 0, 0
        tensors, description = read_checkpoint(self.path)
        try:
            told = description[SERVING]
            if told["format"] != FORMAT:
                raise SnclError(f"{self.path} was written by another version of sncl (format {told['format']})")
            lines = tensors[WAITING].numpy().tobytes().splitlines()
            ledger.load(lines, told["score"], told["predicted"])
            number, learned = int(told["number"]), int(told["learned"])
        except UNREADABLE as error:
            raise SnclError(f"{self.path} is no snapshot of a server; name another file with `snapshot`") from error
        model.restore(self.path)
        return number, learned

    def records(self, behind: int) -> list[dict[str, Any]]:
        """What the journal holds behind that record."""
        return list(read_records(self.path, behind))

    def write(self, state: ServerState) -> None:
        """Store a state, and remove what the journal says up to there."""
        before = [path for path in segments(self.path) if _first(path) <= state.number]
        content = np.frombuffer(b"".join(state.ledger.lines()) or b"\n", dtype=np.uint8)
        told = {
            "format": FORMAT,
            "number": state.number,
            "learned": state.learned,
            "predicted": state.ledger.predicted,
            "score": list(state.ledger.score),
        }
        tensors = state.tensors | {WAITING: torch.from_numpy(content.copy())}
        write_checkpoint(self.path, tensors, state.description | {SERVING: told})
        for path in before:
            with suppress(OSError):  # it is passed over then
                path.unlink()
        sync_names(self.path.parent)


def _first(segment: Path) -> int:
    return int(segment.name.rpartition("-")[2])
