"""Progress bars; quiet where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


def counting_bar(console: Console) -> Progress:
    """Bars with how many of how many are done and a note behind; quiet where there is no terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def reading_bar(console: Console) -> Iterator[Callable[[int, int], None]]:
    """A progress function for images that are decoded once: so many of so many. Nothing is shown before the first."""
    with counting_bar(console) as progress:
        bars: list[TaskID] = []

        def update(done: int, total: int) -> None:
            if not bars:
                bars.append(progress.add_task("reading the images, once", total=total, note=""))
            progress.update(bars[0], completed=done, total=total)

        yield update


@contextmanager
def download_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress function for downloads: file name, bytes so far, bytes in all."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done, total=total or None)

        yield update
