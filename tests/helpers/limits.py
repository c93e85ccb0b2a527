"""A limit on the memory of this process, for tests that read hostile files: a reader that wants more fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATM = Path("/proc/self/statm")
MORE_BYTES = 4 * 2**30  # beyond what the process has: small files, but threads that decode them reserve a lot each


@contextmanager
def limited_memory(more: int = MORE_BYTES) -> Iterator[None]:
    """No more than so many bytes beyond what there is; without an effect where the system knows no such limit."""
    if not STATM.exists():
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
