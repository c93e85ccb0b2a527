"""Many runs at once, behind a live view of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from sncl.cli.words import as_options
from sncl.live.following import Followed
from sncl.live.view import LiveView, live
from sncl.runs.experiment import Experiment
from sncl.runs.job import Job, JobReport, work
from sncl.training.engine import exact_kernels
from sncl.training.events import Moment
from sncl.training.parallel import cores, run_all, run_in_threads

RUNS_ON_A_GPU = 8  # at once: more do not finish sooner


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

    first = experiments[0]
    heading = words(first.method, first.stream, max(memories, default=0), first.seed, True)
    return heading, [words(each.method, each.stream, each.memory, each.seed, False) for each in experiments]


def run_jobs(jobs: list[Job], console: Console, function: Callable[[Job, JobReport], Any] = work) -> list[Any]:
    """Run all jobs, as many at once as there are cores, behind a live view of them where there is a terminal."""
    heading, titles = run_titles([job.experiment for job in jobs])
    if len(jobs) > 1:
        heading = f"{len(jobs)} runs" + (f": {heading}" if heading else "")
    view = LiveView(heading, [Followed(title) for title in titles])
    warned = set()

    def tell(number: int, moment: Moment | None) -> None:
        """Draw a run, and warn of one that has collapsed, once."""
        view.tell(number, moment)
        warning = moment.evaluation.warning() if moment is not None and moment.evaluation is not None else None
        if warning is not None and number not in warned:
            warned.add(number)
            console.print(f"warning: {titles[number]}{': ' * bool(titles[number])}{as_options(warning)}")

    with live(view, console):
        if all(job.experiment.device.startswith("cuda") for job in jobs):
            with exact_kernels():  # for all of them: a run that ends would switch it off for the others
                return run_in_threads(function, jobs, RUNS_ON_A_GPU, tell)
        if len(jobs) == 1:
            return [function(jobs[0], partial(tell, 0))]
        threads = max(job.experiment.threads for job in jobs)
        return run_all(function, jobs, max(1, cores() // threads), tell)
