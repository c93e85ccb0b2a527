"""``sncl train``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sncl.cli.choosing import choose_method, choose_stream, from_file, tell
from sncl.cli.console import err, out, print_json, print_note, print_table
from sncl.cli.options import (
    CategoryOption,
    ClassesOption,
    CutOption,
    DataOption,
    DeviceOption,
    DomainOption,
    EpochsOption,
    IgnoreOption,
    JsonOption,
    MemoryOption,
    MethodOption,
    NumberOption,
    OnOption,
    PrecisionOption,
    ReportOption,
    SetOption,
    SizeOption,
    SlurmOption,
    SplitOption,
    StreamOption,
    TargetOption,
    TasksOption,
    TensorboardOption,
    fleet_of,
)
from sncl.cli.reports import check_outputs, report_on
from sncl.errors import SnclError
from sncl.training.launch import is_leader, processes_started

if TYPE_CHECKING:
    from sncl.executors.fleet import Fleet
    from sncl.runs.experiment import Experiment
    from sncl.runs.job import Job
    from sncl.runs.result import Result

RUNS = Path("runs")  # where runs are kept, unless a folder is named


def train_command(
    stream: StreamOption,
    method: MethodOption,
    memory: MemoryOption = None,
    seed: Annotated[int | None, typer.Option(help="The seed of one run (default: 0)")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run the seeds 0 .. N-1, several at once")] = None,
    epochs: EpochsOption = None,
    tasks: TasksOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    ignore: IgnoreOption = None,
    category: CategoryOption = None,
    number: NumberOption = None,
    size: SizeOption = None,
    set_: SetOption = None,
    file: Annotated[Path | None, typer.Option("--settings", help="A file that `sncl tune` wrote")] = None,
    data: DataOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/...)")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: Annotated[
        str, typer.Option(help="auto, eager or graph (auto: a CUDA graph on a GPU, eager in short runs)")
    ] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads of one run (default: 1; ResNets: all cores)")] = None,
    validation: Annotated[float, typer.Option(help="Hold out this part of training data and score on it")] = 0.0,
    checkpoint: Annotated[float, typer.Option(help="Seconds between checkpoints", min=0)] = 30.0,
    keep_tasks: Annotated[
        bool, typer.Option("--keep-tasks", help="Also keep the network after each task, for `sncl analyze tsne`")
    ] = False,
    tensorboard: TensorboardOption = False,
    report: ReportOption = None,
    on: OnOption = "local",
    slurm: SlurmOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a method on a stream. The same command on the same folder goes on where it stopped."""
    from sncl.runs.finished import finished_result
    from sncl.runs.job import Job
    from sncl.runs.plan import plan

    group = one_of_several(seeds)
    numbers, method = seeds_asked(seed, seeds), choose_method(method)
    check_outputs(report, tensorboard)
    fleet = fleet_of(on, slurm)
    columns = ignore, category, number
    beside = folder or RUNS
    chosen = choose_stream(stream, cut, target, domain, size, split, classes, set_, *columns, beside)
    settings = {} if file is None else from_file(file, chosen, method, memory)
    common = partial(
        plan,
        chosen.stream,
        method,
        memory=memory,
        epochs=epochs,
        tasks=tasks,
        validation=validation,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        settings=settings | chosen.settings,
        user_data=chosen.user_data,
        elsewhere=fleet is not None,
    )
    jobs = []
    for one in numbers:
        experiment = common(seed=one, unchecked=True)
        place = run_folder(folder, experiment, several=seeds is not None)
        jobs.append(Job(experiment, place, data, checkpoint, keep_tasks, tensorboard, group))
    found = [finished_result(job.experiment, job.folder, job.data) for job in jobs]
    if None in found:
        common(seed=numbers[0])  # now with every check
    tell(chosen, jobs[0].experiment)
    for note in notes_before(jobs, found, memory):
        err.print(note)
    show_results(jobs, results_of(jobs, found, fleet), seeds is not None, as_json)
    if is_leader():
        chosen.remember(beside)
        report_on([job.folder for job in jobs], report)


def one_of_several(seeds: int | None) -> str | None:
    """Where torchrun started several processes for one run: be quiet unless this is the first of them."""
    if processes_started() == 1:
        return None
    if seeds is not None:
        raise SnclError("torchrun lets its processes share one run: give `seed`, not `seeds`")
    out.quiet = err.quiet = not is_leader()
    return "auto"


def seeds_asked(seed: int | None, seeds: int | None) -> Sequence[int]:
    """The seeds to run: one, or the first so many."""
    if seed is not None and seeds is not None:
        raise SnclError("give either `seed` or `seeds`, not both")
    if seeds is not None and seeds < 1:
        raise SnclError(f"`seeds` is at least 1, not {seeds}")
    return [seed or 0] if seeds is None else range(seeds)


def run_folder(folder: Path | None, experiment: Experiment, several: bool) -> Path:
    """Where a run is kept: below ``runs``, in the folder that was asked for, or in one of its own below that."""
    if folder is None:
        return RUNS / experiment.name()
    return folder / f"seed-{experiment.seed}" if several else folder


def results_of(jobs: list[Job], found: Sequence[Result | None], fleet: Fleet | None = None) -> Sequence[Result]:
    """The results that were found, or all of them once the runs are finished."""
    finished = [result for result in found if result is not None]
    if len(finished) == len(jobs):
        return finished
    from sncl.cli.jobs import run_jobs

    return run_jobs(jobs, err, fleet=fleet)


def notes_before(jobs: Sequence[Job], found: Sequence[Result | None], memory: int | None) -> list[str]:
    """What should be known before the runs: which are finished already, and which options change nothing."""
    from sncl.methods.table import entry
    from sncl.training.folder import BOARD, TASK_NETWORK

    method = jobs[0].experiment.method
    notes = []
    if memory is not None and not entry(method).memory:
        notes.append(f"note: {method} keeps no memory, so --memory {memory} changes nothing")
    for job, result in zip(jobs, found, strict=True):
        if result is None:
            continue
        notes.append(f"already finished: {job.folder} (the stored result is shown)")
        if job.keep_tasks and not (job.folder / TASK_NETWORK.format(1)).exists():
            notes.append("note: it was made without --keep-tasks; give another --out to make it again with them")
        if job.tensorboard and not (job.folder / BOARD).is_dir():
            notes.append("note: it was made without --tensorboard; give another --out to make it again with it")
    return notes


def show_results(jobs: Sequence[Job], results: Sequence[Result], several: bool, as_json: bool) -> None:
    """Print the results as a table or as JSON, and say where the runs are."""
    from sncl.runs.summary import footnote, majority_warnings, results_table

    for warning in majority_warnings(results):
        err.print(f"warning: {warning}")
    if as_json and is_leader():
        print_json({"runs": [result.to_json() for result in results]} if several else results[0].to_json())
        return
    print_table(*results_table(results))
    print_note(footnote(results))
    err.print("run folder" + ("s" if len(jobs) > 1 else "") + ":", *(str(job.folder) for job in jobs))
