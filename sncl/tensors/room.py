"""Memory, asked for before it is taken: small files can stand for very large arrays."""

from __future__ import annotations

import os
from pathlib import Path

from sncl.errors import SnclError

GIB = 2**30
MEMINFO = Path("/proc/meminfo")
CGROUPS = (  # limit, use and statistics of a container, of both versions of control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
CGROUP = Path("/sys/fs/cgroup")
CACHED = ("inactive_file", "active_file")  # files kept in memory, which give way


def available_memory() -> int | None:
    """Bytes that can be taken without moving others out, here and in this container; None where nobody tells."""
    known = [_of_machine(), *(_of_container(*names) for names in CGROUPS)]
    return min((each for each in known if each is not None), default=None)


def require_memory(needed: int, what: str, advice: str) -> None:
    """Refuse what would take more memory than there is."""
    available = available_memory()
    if available is not None and needed > available:
        raise SnclError(
            f"{what} would take {needed / GIB:,.1f} GiB of memory, and {available / GIB:,.1f} GiB are available; "
            + advice
        )


def _of_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, LookupError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_container(limit: str, used: str, statistics: str) -> int | None:
    """What a container may still take, the files it keeps in memory included."""
    try:
        lines = [line.split() for line in (CGROUP / statistics).read_text().splitlines()]
        cached = sum(int(line[1]) for line in lines if line[0] in CACHED)
        return int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text()) + cached
    except (OSError, ValueError, IndexError):
        return None
