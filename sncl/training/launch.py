"""Whether this process was started as one of several, as torchrun does it; known without torch."""

from __future__ import annotations

import os


def processes_started() -> int:
    """How many processes were started to share a run, this one included; 1 where it stands alone."""
    count = os.environ.get("WORLD_SIZE", "1")
    return int(count) if count.isdecimal() and "RANK" in os.environ else 1


def is_leader() -> bool:
    """Whether this process is the one that writes and shows things."""
    return processes_started() == 1 or os.environ["RANK"] == "0"
