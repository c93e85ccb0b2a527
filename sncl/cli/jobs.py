"""Many runs at once, on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

from sncl.cli.words import as_options
from sncl.executors.fleet import Fleet
from sncl.live.jobs import ConsoleDisplay, run_watched
from sncl.runs.job import Job, JobReport, work


def run_jobs(
    jobs: list[Job],
    console: Console,
    function: Callable[[Job, JobReport], Any] = work,
    fleet: Fleet | None = None,
) -> list[Any]:
    """Run all jobs, as many at once as there are cores, behind a live view of them where there is a terminal."""
    return run_watched(jobs, ConsoleDisplay(console, as_options), function, fleet=fleet)
