"""``sncl train`` and ``sncl demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sncl.cli.choosing import choose, from_file
from sncl.cli.console import err, out, print_json, print_table
from sncl.cli.options import (
    ClassesOption,
    CutOption,
    DataOption,
    DeviceOption,
    DomainOption,
    EpochsOption,
    JsonOption,
    MemoryOption,
    MethodOption,
    PictureOption,
    PrecisionOption,
    ReportOption,
    SizeOption,
    SplitOption,
    StreamOption,
    TargetOption,
    TasksOption,
    TensorboardOption,
)
from sncl.cli.reports import check, tell
from sncl.errors import SnclError


def train(
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
    size: SizeOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting")] = None,
    file: Annotated[Path | None, typer.Option("--settings", help="A file that `sncl tune` wrote")] = None,
    data: DataOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/...)")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager or graph (auto: a CUDA graph on a GPU)")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads of one run (default: 1; ResNets: all cores)")] = None,
    validation: Annotated[float, typer.Option(help="Hold out this part of training data and score on it")] = 0.0,
    checkpoint: Annotated[float, typer.Option(help="Seconds between checkpoints", min=0)] = 30.0,
    keep_tasks: Annotated[
        bool, typer.Option("--keep-tasks", help="Also keep the network after each task, for `sncl analyze tsne`")
    ] = False,
    tensorboard: TensorboardOption = False,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a method on a stream. The same command on the same folder goes on where it stopped."""
    from sncl.commands import Job, run_jobs
    from sncl.methods.table import entry
    from sncl.runs.experiment import plan, stored_result
    from sncl.runs.summary import table
    from sncl.training.run import BOARD, TASK_NETWORK

    if seed is not None and seeds is not None:
        raise SnclError("give either --seed or --seeds, not both")
    if seeds is not None and seeds < 1:
        raise SnclError(f"--seeds is at least 1, not {seeds}")
    check(report, tensorboard)
    chosen = choose(stream, cut, target, domain, size, split, classes, set_)
    settings = chosen.settings
    if file is not None:
        settings = from_file(file, chosen, method, memory) | settings
    jobs = []
    for number in [seed or 0] if seeds is None else range(seeds):
        experiment = plan(
            chosen.stream,
            method,
            memory=memory,
            seed=number,
            epochs=epochs,
            tasks=tasks,
            validation=validation,
            device=device,
            precision=precision,
            engine=engine,
            threads=threads,
            settings=settings,
            user_data=chosen.user_data,
        )
        place = Path("runs") / experiment.name() if folder is None else folder
        own = place / f"seed-{number}" if folder and seeds is not None else place
        jobs.append(Job(experiment, own, data, checkpoint, keep_tasks, tensorboard))
    done = [job for job in jobs if stored_result(job.experiment, job.folder) is not None]
    chosen.tell(jobs[0].experiment)
    if memory is not None and not entry(method).memory:
        err.print(f"note: {method} keeps no memory, so --memory {memory} changes nothing")
    for job in done:
        err.print(f"already finished: {job.folder} (the stored result is shown)")
        if keep_tasks and not (job.folder / TASK_NETWORK.format(1)).exists():
            err.print("note: it was made without --keep-tasks; give another --out to make it again with them")
        if tensorboard and not (job.folder / BOARD).is_dir():
            err.print("note: it was made without --tensorboard; give another --out to make it again with it")
    results = run_jobs(jobs, err)
    if as_json:
        print_json(results[0].to_json() if seeds is None else {"runs": [result.to_json() for result in results]})
    else:
        print_table(*table(results))
        err.print("run folder" + ("s" if len(jobs) > 1 else "") + ":", *(str(job.folder) for job in jobs))
    tell([job.folder for job in jobs], report)


def demo(
    seeds: Annotated[int, typer.Option(help="How many seeds", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option("--out", help="Keep the runs here (default: a temporary one)")] = None,
    picture: PictureOption = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch SGD, ER, DER++ and SNCL learn the embedded streams: no download, under two minutes."""
    from sncl.commands import check_picture, demo_jobs, draw, run_jobs, working_folder
    from sncl.runs.summary import table

    if picture is not None:
        check_picture(picture)
    check(report)
    with working_folder(folder) as place:
        jobs = demo_jobs(seeds, place)
        results = run_jobs(jobs, err)
        if as_json:
            print_json({"runs": [result.to_json() for result in results]})
        else:
            for stream in dict.fromkeys(result.stream for result in results):
                print_table(*table([result for result in results if result.stream == stream]))
                out.print()
        if picture is not None:
            draw(results, picture)
            err.print(f"picture: {picture}")
        tell([job.folder for job in jobs], report)
