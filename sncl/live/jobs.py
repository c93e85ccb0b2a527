"""Many runs at once, while a display shows how far they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from sncl.errors import SnclError
from sncl.evaluation.collapse import Collapse
from sncl.executors.fleet import Calls, Fleet, Resources
from sncl.live.following import Followed
from sncl.live.view import LiveView, live
from sncl.methods.own import carrying, is_portable
from sncl.runs.experiment import Experiment
from sncl.runs.job import Job, JobReport, work
from sncl.training.engine import exact_kernels
from sncl.training.events import Evaluation, Moment
from sncl.training.parallel import cores, run_all, run_here, run_in_threads

RUNS_ON_A_GPU = 8  # at once: more do not finish sooner

KINDS: tuple[type, ...] = (Moment, Evaluation, Collapse)  # what runs tell


class Display(Protocol):
    """Where runs are watched."""

    def showing(self, view: LiveView) -> AbstractContextManager[None]:
        """Show the view while the block runs."""

    def told(self, view: LiveView, number: int) -> None:
        """A run of the view has something new."""

    def say(self, text: str) -> None:
        """Something that should be known beside it."""


class ConsoleDisplay:
    """The live view on a terminal; elsewhere nothing but what is said. ``words`` are those of whoever reads it."""

    def __init__(self, console: Console, words: Callable[[str], str] = str) -> None:
        self.console = console
        self.words = words

    def showing(self, view: LiveView) -> AbstractContextManager[None]:
        return live(view, self.console)

    def told(self, view: LiveView, number: int) -> None:
        """The view is drawn by a thread of its own."""

    def say(self, text: str) -> None:
        self.console.print(self.words(text))


def run_titles(experiments: Sequence[Experiment]) -> tuple[str, list[str]]:
    """What the experiments have in common, and what each of them is beside that, in words."""
    memories = {each.memory for each in experiments} - {0}  # methods without one do not make it worth telling
    shared = {
        "method": len({each.method for each in experiments}) == 1,
        "stream": len({each.stream for each in experiments}) == 1,
        "memory": len(memories) <= 1,
        "seed": len({each.seed for each in experiments}) == 1,
    }

    def words(method: str, stream: str, memory: int, seed: int, common: bool) -> str:
        named = [method] * (shared["method"] == common) + [f"on {stream}"] * (shared["stream"] == common)
        rest = [f"memory {memory}"] * (shared["memory"] == common and memory > 0)
        return ", ".join(filter(None, [" ".join(named), *rest, *[f"seed {seed}"] * (shared["seed"] == common)]))

    first, names = experiments[0], [each.method.rpartition(":")[2] for each in experiments]
    heading = words(names[0], first.stream, max(memories, default=0), first.seed, True)
    return heading, [
        words(name, each.stream, each.memory, each.seed, False) for name, each in zip(names, experiments, strict=True)
    ]


def run_watched(
    jobs: list[Job],
    display: Display,
    function: Callable[[Job, JobReport], Any] = work,
    workers: Callable[..., list[Any]] | None = None,
    fleet: Fleet | None = None,
) -> list[Any]:
    """Run all jobs, as many at once as there are cores, on a display of how far they are.

    ``workers`` is :func:`~sncl.training.parallel.run_all`, or a variant of it. A ``fleet`` makes the runs elsewhere.
    """
    heading, titles = run_titles([job.experiment for job in jobs])
    if len(jobs) > 1:
        heading = f"{len(jobs)} runs" + (f": {heading}" if heading else "")
    view = LiveView(heading, [Followed(title) for title in titles])
    warned = set()

    def tell(number: int, moment: Moment | None) -> None:
        """Show a run, and warn of one that has collapsed, once."""
        view.tell(number, moment)
        display.told(view, number)
        warning = moment.evaluation.warning() if moment is not None and moment.evaluation is not None else None
        if warning is not None and number not in warned:
            warned.add(number)
            display.say(f"warning: {titles[number]}{': ' * bool(titles[number])}{warning}")

    with display.showing(view):
        if fleet is not None:
            return fleet.run(calls_of(jobs, function), tell, display.say)
        if all(job.experiment.device.startswith("cuda") for job in jobs):
            with exact_kernels():  # for all of them: a run that ends would switch it off for the others
                return run_in_threads(function, jobs, RUNS_ON_A_GPU, tell)
        if len(jobs) == 1 or not all(is_portable(job.experiment.method) for job in jobs):
            return run_here(function, jobs, tell)
        threads = max(job.experiment.threads for job in jobs)
        return (workers or run_all)(carrying(function), jobs, max(1, cores() // threads), tell)


def calls_of(jobs: list[Job], function: Callable[[Job, JobReport], Any]) -> Calls:
    """What another machine is told of the jobs."""
    for job in jobs:
        if not is_portable(job.experiment.method):
            raise SnclError(
                f"{job.experiment.method} is defined in this session, where no other machine finds it; put it into a "
                'module of its own, or use `on="local"`'
            )
    folders = [job.folder.absolute().parent for job in jobs]
    share = resources_of([job.experiment for job in jobs])
    return Calls(carrying(function), jobs, Path(os.path.commonpath(folders)), share, KINDS)


def resources_of(experiments: Sequence[Experiment]) -> Resources:
    """What one run takes of a machine: the threads it has, and its part of a GPU."""
    on_gpu = any(each.device.startswith("cuda") for each in experiments)
    return Resources(max(each.threads for each in experiments), 1 / RUNS_ON_A_GPU if on_gpu else 0.0)
