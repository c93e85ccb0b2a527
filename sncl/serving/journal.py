"""The journal: every acknowledged request that changes something, in order, beside the snapshot.

A segment is a file of lines, each a CRC-32 and a record as JSON; its name ends with the number of its first record. A
record is handed to the system before its request is answered, so a killed process loses nothing; when it is written
through to the disk, and so survives a power failure, the caller decides.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from sncl.errors import SnclError
from sncl.serving.refusals import RequestRefused
from sncl.training.checkpoint import file_content, sync_names

DIGITS = 15


def segment_path(snapshot: Path, first: int) -> Path:
    """Where the records from that number on lie."""
    return snapshot.with_name(f"{snapshot.name}.journal-{first:0{DIGITS}}")


def segments(snapshot: Path) -> list[Path]:
    """The segments of the journal beside a snapshot, in order."""
    pattern = re.compile(rf"{re.escape(snapshot.name)}\.journal-\d{{{DIGITS}}}")
    return sorted(path for path in snapshot.parent.iterdir() if pattern.fullmatch(path.name))


class RequestJournal:
    """The journal that is being written, from record ``number`` + 1 on.

    ``append`` and ``rotate`` are called by one thread at a time, ``sync`` by any number of them.
    """

    def __init__(self, snapshot: Path, number: int) -> None:
        self.snapshot = snapshot
        self.number = self.synced = number  # of the last record that was written, and written through
        self.bytes = 0
        self.broken = ""  # why nothing can be written any more
        self._syncing = Lock()
        self._file = self._begin()

    def _begin(self) -> int:
        try:
            opened = os.open(
                segment_path(self.snapshot, self.number + 1), os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600
            )
            sync_names(self.snapshot.parent)
        except OSError as error:
            raise SnclError(f"cannot write a journal beside {self.snapshot}: {error.strerror or error}") from error
        return opened

    def append(self, record: dict[str, Any]) -> int:
        """Hand one more record to the system; its number."""
        self.check()
        line = encode_record(record | {"number": self.number + 1})
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the disk is full")
        except OSError as error:
            self._break(error)
        self.bytes += len(line)
        self.number += 1
        return self.number

    def sync(self, number: int) -> None:
        """Write through to the disk at least up to that record. Those who come together wait for one write."""
        with self._syncing:
            if self.synced < number:
                self.check()
                reached = self.number
                try:
                    os.fsync(self._file)
                except OSError as error:
                    self._break(error)
                self.synced = reached

    def rotate(self) -> None:
        """Go on in a new segment; those before it may be removed when a snapshot holds what they say."""
        self.sync(self.number)
        with self._syncing:
            self.check()
            before = self._file
            try:
                self._file = self._begin()
            except SnclError as error:
                self._break(error)
            os.close(before)
            self.bytes = 0

    def close(self) -> None:
        """Write the last records through; the journal is not written any more."""
        if not self.broken:
            self.sync(self.number)
            self.broken = "the server has ended"
        os.close(self._file)
        if not self.bytes:
            segment_path(self.snapshot, self.number + 1).unlink(missing_ok=True)

    def check(self) -> None:
        """Refuse what could not be kept."""
        if self.broken:
            raise RequestRefused(503, f"nothing can be kept any more: {self.broken}")

    def _break(self, error: Exception) -> None:
        self.broken = f"cannot write the journal beside {self.snapshot} ({error})"
        raise RequestRefused(503, self.broken) from error


def encode_record(record: dict[str, Any]) -> bytes:
    """A record as a line."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return f"{zlib.crc32(text):08x} ".encode() + text + b"\n"


def decode_record(line: bytes) -> dict[str, Any] | None:
    """The record of a line without its end; None if it is damaged."""
    if len(line) < 9 or line[8:9] != b" " or line[:8] != f"{zlib.crc32(line[9:]):08x}".encode():
        return None
    try:
        record = json.loads(line[9:])
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("number"), int) else None


def read_records(snapshot: Path, behind: int) -> Iterator[dict[str, Any]]:
    """The records behind that number, in order.

    The last record may have been written in part when a process or the power went away: it was never acknowledged, and
    is left out. Damage in front of whole records, or a gap, is refused.
    """
    paths, number = segments(snapshot), behind
    for path in paths:
        for record in _segment(path, last=path == paths[-1]):
            if record["number"] <= number:
                continue
            if record["number"] != number + 1:
                raise SnclError(f"{path} goes on with record {record['number']}, and {number + 1} is missing")
            number += 1
            yield record


def _segment(path: Path, last: bool) -> Iterator[dict[str, Any]]:
    try:
        *lines, rest = file_content(path).split(b"\n")
    except OSError as error:
        raise SnclError(f"cannot read {path}: {error.strerror or error}") from error
    records = [decode_record(line) for line in lines]
    good = next((index for index, record in enumerate(records) if record is None), len(records))
    behind = sum(record is not None for record in records[good:])
    if behind or (not last and (good < len(records) or rest)):
        at = sum(len(line) + 1 for line in lines[:good])
        raise SnclError(
            f"{path} is damaged at byte {at}, and {behind} whole records follow; cut it off there to go on without "
            "them, or bring back an undamaged copy"
        )
    yield from (record for record in records[:good] if record is not None)
