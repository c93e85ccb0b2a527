"""The processes that real programs leave behind, for tests that stop them."""

import time
from pathlib import Path

PATIENCE = 5.0  # seconds for what ends with the main process: it closes a pipe that they read


def alive(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def left_behind(session: int) -> list[int]:
    """The processes of a session that outlive its main one by more than a moment."""
    until = time.monotonic() + PATIENCE
    while (found := alive(session)) and time.monotonic() < until:
        time.sleep(0.02)
    return found
