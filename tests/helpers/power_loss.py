"""What a power loss may leave of files, by the rule that only what was written through to the disk is certain.

The calls of a program, written down by the shim of ``tests/reliability/shim.c``, are followed one by one. What a file
holds is certain since its last fsync, and which names a folder holds since the last fsync of the folder. Of all that
came later any part may be there: no system leaves more, and most leave less.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple, Union


class Call(NamedTuple):
    """One call that changed something; ``op`` is "nothing" where the system refused it."""

    op: str
    fd: int
    flags: int
    offset: int
    data: bytes
    path: str
    second: str


def read_calls(record: Path) -> list[Call]:
    """The calls that the shim has written down."""
    content, calls, start = record.read_bytes(), list[Call](), 0
    while start < len(content):
        end = content.index(b"\n", start)
        op, fd, flags, offset, length, names = content[start:end].decode().split(" ", 5)
        start = end + 1 + int(length)
        calls.append(Call(op, int(fd), int(flags), int(offset), content[end + 1 : start], *names.split("\t")))
    return calls


@dataclass(eq=False)
class Content:
    """A file: what is certain, what it holds, and how far it has been in between."""

    certain: bytes = b""
    now: bytes = b""
    between: list[bytes] = field(default_factory=list)

    def change(self, now: bytes) -> None:
        self.between.append(self.now)
        self.now = now

    def sync(self) -> None:
        self.certain, self.between = self.now, []

    def possible(self) -> list[bytes]:
        """Old, new, anything in between, half of what is new, and its length without its bytes."""
        if self.now == self.certain:
            return list(dict.fromkeys([self.certain, *self.between]))
        half = self.now[: (len(self.certain) + len(self.now)) // 2]
        zeros = self.certain + bytes(max(0, len(self.now) - len(self.certain)))
        return list(dict.fromkeys([self.certain, self.now, *self.between, half, zeros]))


Entry = Union[Content, "Folder"]
Change = dict[str, Entry | None]  # names and what they stand for; None: they are gone


@dataclass(eq=False)
class Folder:
    """A folder: the names that are certain, those there are, and what has changed since."""

    certain: dict[str, Entry] = field(default_factory=dict)
    now: dict[str, Entry] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        self.changes.append(change)
        self.now = _applied(self.now, change)

    def sync(self) -> None:
        self.certain, self.changes = dict(self.now), []

    def possible(self) -> Iterator[dict[str, bytes]]:
        """The files below this folder after a power loss, in every combination."""
        for kept in product((False, True), repeat=len(self.changes)):
            entries = self.certain
            for change, is_kept in zip(self.changes, kept, strict=True):
                entries = _applied(entries, change) if is_kept else entries
            below = [[(name, each) for each in entry.possible()] for name, entry in entries.items()]
            for chosen in product(*below):
                yield _flat(chosen)


def _applied(entries: dict[str, Entry], change: Change) -> dict[str, Entry]:
    return {name: entry for name, entry in (entries | change).items() if entry is not None}


def _flat(chosen: tuple[tuple[str, bytes | dict[str, bytes]], ...]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name, each in chosen:
        if isinstance(each, bytes):
            files[name] = each
        else:
            files |= {f"{name}/{inner}": content for inner, content in each.items()}
    return files


class Disk:
    """The files below one folder, which was there before."""

    def __init__(self, root: str) -> None:
        self.root, self.top = root, Folder()
        self.open: dict[int, Entry] = {}

    def follow(self, call: Call) -> None:
        """What a call does."""
        if call.op == "open":
            self._open(call)
        elif call.op == "write":
            entry = self._content(call.fd)
            before = entry.now.ljust(call.offset, b"\0")
            entry.change(before[: call.offset] + call.data + before[call.offset + len(call.data) :])
        elif call.op == "truncate":
            entry = self._content(call.fd)
            entry.change(entry.now[: call.offset].ljust(call.offset, b"\0"))
        elif call.op == "fsync":
            entry = self._found(call.path)
            (entry if isinstance(entry, Folder) else self._content(call.fd)).sync()
        elif call.op == "mkdir":
            folder, name = self._place(call.path)
            folder.change({name: Folder()})
        elif call.op in ("unlink", "rmdir"):
            folder, name = self._place(call.path)
            folder.change({name: None})
        elif call.op in ("rename", "link"):
            self._name(call)

    def states(self) -> Iterator[dict[str, bytes]]:
        """All that a power loss may leave now, by path from the folder."""
        return self.top.possible()

    def _open(self, call: Call) -> None:
        folder, name = self._place(call.path)
        if name not in folder.now:
            folder.change({name: Content()})
        entry = folder.now[name]
        if call.flags & os.O_TRUNC and isinstance(entry, Content) and entry.now:
            entry.change(b"")
        self.open[call.fd] = entry

    def _name(self, call: Call) -> None:
        (folder, name), (other, second) = self._place(call.path), self._place(call.second)
        assert folder is other, "all renames are inside one folder"
        entry = folder.now[name]
        if call.op == "link":
            folder.change({second: entry})
        elif folder.now.get(second) is not entry:  # two names of one file: rename does nothing
            folder.change({name: None, second: entry})

    def _content(self, fd: int) -> Content:
        entry = self.open[fd]
        assert isinstance(entry, Content)
        return entry

    def _found(self, path: str) -> Entry | None:
        if path == self.root:
            return self.top
        folder, name = self._place(path)
        return folder.now.get(name)

    def _place(self, path: str) -> tuple[Folder, str]:
        *above, name = os.path.relpath(path, self.root).split("/")
        folder = self.top
        for each in above:
            below = folder.now[each]
            assert isinstance(below, Folder)
            folder = below
        return folder, name


def leave(files: dict[str, bytes], folder: Path) -> Path:
    """Such a state, as files in a folder."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
