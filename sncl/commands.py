"""What the commands do once their options are understood: run jobs behind a live view, the demo, its picture."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

from sncl.analysis.groups import Group, record
from sncl.analysis.groups import group as by_seed
from sncl.errors import SnclError
from sncl.live.following import Followed
from sncl.live.view import Overall, View, live
from sncl.runs.experiment import Experiment, check_memory, make_stream, perform, plan
from sncl.runs.loading import Trained, load_run
from sncl.runs.summary import READOUT_TITLES, group, readouts, spread
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.events import Moment, sparingly
from sncl.training.parallel import cores, run_all, run_in_threads
from sncl.training.run import CHECKPOINT_SECONDS
from sncl.tuning.search import Search, Trial

if TYPE_CHECKING:
    from sncl.tuning.study import Standing

DEMO_METHODS = ("sgd", "er", "derpp", "sncl")
DEMO_STREAMS = ("seq-digits", "perm-digits", "rot-digits", "digits-360")
DEMO_MEMORY = 100
RUNS_ON_A_GPU = 8  # at once: more do not finish sooner


@dataclass(frozen=True)
class Job:
    """One experiment and where it is kept."""

    experiment: Experiment
    folder: Path
    data: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    keep_tasks: bool = False
    tensorboard: bool = False


Report = Callable[[Moment | None], None]  # None: the job has ended


def work(job: Job, report: Report) -> dict[str, Any]:
    """Perform one job and report on it now and then, not every step, and when it ends, well or not."""
    watch = sparingly(report)

    def reading(done: int, total: int) -> None:
        watch(Moment(done, total, task=0, tasks=1, reading=True))

    options = (job.checkpoint_seconds, job.keep_tasks, job.tensorboard)
    try:
        return perform(job.experiment, job.folder, job.data, watch, reading, *options)
    finally:
        report(None)


def counting_bar(console: Console) -> Progress:
    """Bars with how many of how many are done and a note behind; quiet where there is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def names(experiments: Sequence[Experiment]) -> tuple[str, list[str]]:
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


def run_jobs(jobs: list[Job], console: Console, function: Callable[[Job, Report], Any] = work) -> list[Any]:
    """Run all jobs, as many at once as there are cores, behind a live view of them where there is a terminal."""
    heading, titles = names([job.experiment for job in jobs])
    if len(jobs) > 1:
        heading = f"{len(jobs)} runs" + (f": {heading}" if heading else "")
    view = View(heading, [Followed(title) for title in titles])
    with live(view, console):
        if all(job.experiment.device.startswith("cuda") for job in jobs):
            with exact_kernels():  # for all of them: a run that ends would switch it off for the others
                return run_in_threads(function, jobs, RUNS_ON_A_GPU, view.tell)
        if len(jobs) == 1:
            return [function(jobs[0], partial(view.tell, 0))]
        threads = max(job.experiment.threads for job in jobs)
        return run_all(function, jobs, max(1, cores() // threads), view.tell)


def tune(
    search: Search,
    trials: int,
    storage: Path,
    out: Path,
    console: Console,
    data: Path | None = None,
    workers: int | None = None,
) -> list[Trial]:
    """Search until ``trials`` are finished, beside whoever else works on the same study, behind a live view."""
    if find_spec("optuna") is None:
        raise SnclError("tuning needs optuna: pip install sncl[tune]")
    from sncl.tuning.study import Job as StudyJob
    from sncl.tuning.study import Study, take_trials

    usual = search.experiment({}, 0)
    check_memory(usual, make_stream(usual, data))  # what is wrong with the data would be wrong with every trial
    job = StudyJob(search, storage, out, trials, data)
    study = Study(job)
    there = min(study.standing().finished, trials)
    on_gpu = usual.device.startswith("cuda")
    at_once = min(trials, workers or (RUNS_ON_A_GPU if on_gpu else max(1, cores() // usual.threads)))
    view = View(f"{search.method} on {search.stream}, trials on held-out data", [Followed("") for _ in range(at_once)])
    best: float | None = None
    view.overall = overall = Overall(there, trials, there / trials, there / trials)

    def watch(number: int, standing: Standing) -> None:
        nonlocal overall, best
        finished = min(max(overall.ended, standing.finished), trials)  # whoever says so may have heard less
        best = max((value for value in (best, standing.best) if value is not None), default=None)
        note = "" if best is None else f"best so far {best:.2f} %"
        view.overall = overall = overall._replace(ended=finished, part=finished / trials, note=note)
        if view.runs[number].title != standing.trial:
            view.runs[number] = Followed(standing.trial)
        if standing.moment is not None:
            view.tell(number, standing.moment)

    with live(view, console):
        try:
            if on_gpu:
                with exact_kernels():
                    run_in_threads(take_trials, [job] * at_once, at_once, watch)
            elif at_once == 1:
                study.work(partial(watch, 0))
            else:
                run_all(take_trials, [job] * at_once, at_once, watch)
        except SnclError:
            if study.standing().finished < trials:  # else the others finished what one left
                raise
    return study.close()


def analyse(
    folders: Sequence[Path],
    analysis: Callable[..., dict[str, Any]],
    console: Console,
    data: Path | None = None,
    device: str = "auto",
) -> list[Group]:
    """What an analysis says about each run, behind one progress bar each, by method and seed."""
    found = []
    with counting_bar(console) as progress:
        for folder in folders:
            bar = progress.add_task(str(folder), total=None, note="")

            def watch(done: int, total: int, bar: TaskID = bar) -> None:
                progress.update(bar, completed=done, total=total)

            run: Trained = load_run(folder, data, device)
            with exact_kernels(), on_threads(run.experiment.threads):
                found.append(record(run, analysis(run, progress=watch)))
            by_seed(found)  # refuses the same seed twice before more time is spent
    return by_seed(found)


def demo_jobs(seeds: int, folder: Path) -> list[Job]:
    """The demo: every method with the same seeds on every embedded stream."""
    return [
        Job(plan(stream, method, memory=DEMO_MEMORY, seed=seed, device="cpu"), folder / f"{stream}-{method}-{seed}")
        for stream in DEMO_STREAMS
        for method in DEMO_METHODS
        for seed in range(seeds)
    ]


@contextmanager
def working_folder(folder: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one that is removed afterwards."""
    if folder is not None:
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="sncl-") as place:
            yield Path(place)


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
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done, total=total or None)

        yield update


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before the runs and not after them."""
    if path.suffix not in (".png", ".svg"):
        raise SnclError(f"a picture is a .png or .svg file, not {path}")
    if not path.parent.is_dir():
        raise SnclError(f"the folder of {path} does not exist")
    if find_spec("matplotlib") is None:
        raise SnclError("drawing needs matplotlib: pip install sncl[plots]")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """The average accuracy over the tasks seen so far, mean and spread over seeds, one panel for each stream."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    streams = list(dict.fromkeys(result["stream"] for result in results))
    figure, axes = pyplot.subplots(1, len(streams), figsize=(3.4 * len(streams), 3.2), squeeze=False)
    for panel, stream in zip(axes[0], streams, strict=True):
        members = [result for result in results if result["stream"] == stream]
        for row in group(members):
            curves = [
                [sum(known[: t + 1]) / (t + 1) for t, known in enumerate(result["accuracy_matrix"])]
                for result in row.results
            ]
            points = [spread(values) for values in zip(*curves, strict=True)]
            means, deviations = [mean for mean, _ in points], [deviation for _, deviation in points]
            if len(points) == 1:  # a stream without boundaries is tested once
                panel.bar(row.title, means[0], yerr=deviations[0], capsize=3)
            else:
                tasks = range(1, len(points) + 1)
                (line,) = panel.plot(tasks, means, marker="o", markersize=3, label=row.title)
                low = [mean - deviation for mean, deviation in points]
                high = [mean + deviation for mean, deviation in points]
                panel.fill_between(tasks, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        panel.set_title(f"{stream} ({READOUT_TITLES[readouts(members)[0]]})", fontsize=10)
        panel.set_xlabel("tasks seen" if len(members[0]["accuracy_matrix"]) > 1 else "")
        panel.grid(alpha=0.25)
    axes[0][0].set_ylabel("accuracy on tasks seen, %")
    axes[0][0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
