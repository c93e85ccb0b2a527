"""Run folders as one self-contained web page: tables, charts and what the memory holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sncl.errors import SnclError
from sncl.runs.folders import Notify


def check_report(path: Path) -> None:
    """Refuse a page that could not be written, before the runs and not after them."""
    if path.suffix not in (".html", ".htm"):
        raise SnclError(f"a report is an .html file, not {path}")
    if path.is_dir():
        raise SnclError(f"{path} is a directory; a report is a file")
    if not path.parent.is_dir():
        raise SnclError(f"the folder of {path} does not exist")


def write_report(folders: Iterable[Path], path: Path, note: Notify) -> int:
    """Write the page of all finished runs in and below these folders; returns how many there are."""
    from sncl.report.collect import read_runs
    from sncl.report.groups import group_runs
    from sncl.report.page import page
    from sncl.training.checkpoint import write_atomically

    check_report(path)
    runs = read_runs(folders, note)
    try:
        text = page(group_runs(runs), note)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise SnclError(f"these runs hold something that cannot be shown ({type(error).__name__}: {error})") from error
    write_atomically(path, text.encode(errors="backslashreplace"))
    return len(runs)
