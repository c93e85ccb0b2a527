"""Reproduce a table of the paper: find the runs that are there, make those that are missing, write what came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.paper.comparison import Command, markdown
from sncl.paper.records import Known, Record, TableRow, data_of, known, of_lines, read_lines, write_lines
from sncl.paper.tables import PAPER_SEEDS, SNCL_VARIANTS, Cell, cells, values
from sncl.runs.experiment import Experiment, decision
from sncl.runs.job import Job, JobReport, work
from sncl.runs.plan import plan
from sncl.streams.benchmarks import named
from sncl.training.checkpoint import write_atomically

Planned = list[tuple[Cell, Experiment]]
Attempt = Callable[[Job, JobReport], str | None]
RunJobs = Callable[[list[Job], Attempt], Sequence[str | None]]
Note = Callable[[str], None]
NAMED_FAILURES = 3  # runs that fail for the same reason and are named


@dataclass(frozen=True)
class Request:
    """What is to be reproduced; of the choices, empty ones stand for the usual."""

    table: str
    streams: Sequence[str] = ()
    methods: Sequence[str] = ()
    memories: Sequence[int] = ()
    seeds: int = PAPER_SEEDS
    runs: Path = Path("runs")
    results: Path | None = None
    data: Path | None = None
    device: str = "auto"
    precision: str = "auto"
    collect: bool = False
    tensorboard: bool = False
    elsewhere: bool = False  # runs are made on other machines, which may have the GPU that this one lacks


class Failures(SnclError):
    """Some runs failed; ``names`` are their folders."""

    def __init__(self, failed: dict[str, str], jobs: int) -> None:
        self.names = sorted(failed)
        reasons: dict[str, list[str]] = {}
        for name, reason in failed.items():
            reasons.setdefault(reason, []).append(name)
        told = []
        for reason, names in reasons.items():
            more = f" and {len(names) - NAMED_FAILURES} more" if len(names) > NAMED_FAILURES else ""
            told.append(f"{', '.join(names[:NAMED_FAILURES])}{more}: {reason}")
        super().__init__(f"{len(failed)} of {jobs} runs failed: {'; '.join(told)}")


def planned(wanted: Sequence[Cell], device: str, precision: str = "auto", elsewhere: bool = False) -> Planned:
    """The experiment of each cell with seed 0, without the streams a method cannot run on.

    A method that can run on none of them is an error.
    """
    found: Planned = []
    refused: dict[str, SnclError] = {}
    for cell in wanted:
        memory = cell.memory or None
        try:
            experiment = plan(
                cell.stream,
                cell.method,
                memory=memory,
                device=device,
                precision=precision,
                settings=cell.settings,
                elsewhere=elsewhere,
            )
            found.append((cell, experiment))
        except SnclError as error:
            refused[cell.method] = error
    suited = {cell.method for cell, _ in found}
    for method, reason in refused.items():
        if method not in suited:
            raise reason
    return found


def gather(plans: Planned, seeds: int, there: Known) -> list[TableRow]:
    """Each cell with the results that are there."""
    return [
        TableRow(cell, experiment, seeds, there.get(decision(experiment.identity()), {})) for cell, experiment in plans
    ]


def missing_jobs(rows: Sequence[TableRow], runs: Path, data: Path | None, tensorboard: bool = False) -> list[Job]:
    """The runs that the rows still want, each in the folder ``sncl train`` gives it, on the data of those there are."""
    there = data_of(rows)
    wanted = (
        replace(row.experiment, seed=seed, data=there.get(named(row.cell.stream).dataset))
        for row in rows
        for seed in row.missing()
    )
    jobs = {each.name(): Job(each, runs / each.name(), data, tensorboard=tensorboard) for each in wanted}
    return list(jobs.values())


def attempt(job: Job, report: JobReport) -> str | None:
    """Perform a job; in words, why it failed."""
    try:
        work(job, report)
    except SnclError as error:
        return str(error)
    return None


def run_missing(jobs: list[Job], run: RunJobs) -> Exception | None:
    """Run the jobs; one that fails stops no other. What went wrong is returned, so that the rest can still be shown."""
    try:
        reasons = run(jobs, attempt)
    except Exception as error:
        return error
    failed = {job.folder.name: reason for job, reason in zip(jobs, reasons, strict=True) if reason is not None}
    return Failures(failed, len(jobs)) if failed else None


def reproduce(request: Request, run: RunJobs, note: Note, command: Command) -> tuple[list[TableRow], Exception | None]:
    """The rows asked for, once the missing runs are made, and what went wrong with those.

    ``run`` makes runs, ``note`` tells somebody something, and ``command`` is what reproduces rows, for the page.
    """
    if request.seeds < 1:
        raise SnclError(f"`seeds` is at least 1, not {request.seeds}")
    wanted = cells(request.table, request.streams, request.methods, request.memories)
    plans = planned(wanted, request.device, request.precision, request.elsewhere)
    if request.results is not None:
        request.results.mkdir(parents=True, exist_ok=True)
    rows = gather(plans, request.seeds, known(request.runs, earlier_lines(request)))
    data_of(rows)  # refuses to mix
    failure = None
    if not request.collect and (jobs := missing_jobs(rows, request.runs, request.data, request.tensorboard)):
        note(f"runs: {sum(len(row.records) for row in rows)} there, {len(jobs)} to be made")
        failure = run_missing(jobs, run)
    if request.results is None:
        return gather(plans, request.seeds, known(request.runs, [])), failure
    failed = failure.names if isinstance(failure, Failures) else ()

    def page(everything: list[TableRow]) -> str:
        return markdown(request.table, everything, command, failed)

    return write_table(request, request.results, plans, note, page), failure


def write_table(
    request: Request, results: Path, plans: Planned, note: Note, page: Callable[[list[TableRow]], str]
) -> list[TableRow]:
    """Write ``TABLE.md`` and ``TABLE.jsonl`` and return the rows asked for.

    The files also keep the rows that an earlier call wrote and this one did not ask for, unless settings have changed
    since. They are read and replaced under a lock, so that calls side by side lose nothing.
    """
    with FileLock(results / f".{request.table}.lock"):
        lines = earlier_lines(request)
        there = known(request.runs, lines)
        rows = gather(plans, request.seeds, there)
        everything = with_earlier(request, rows, lines, there)
        text = page(everything)
        write_lines(results / f"{request.table}.jsonl", everything)
        write_atomically(results / f"{request.table}.md", text.encode())
    current = {decision(row.experiment.identity()) for row in everything}
    if stale := sum(what not in current for what, _ in of_lines(lines)):
        note(f"note: lines of {request.table}.jsonl left out because settings have changed: {stale}")
    return rows


def earlier_lines(request: Request) -> list[Record]:
    return [] if request.results is None else read_lines(request.results / f"{request.table}.jsonl")


def with_earlier(request: Request, rows: list[TableRow], lines: Sequence[Record], there: Known) -> list[TableRow]:
    """These rows and those of the lines that still hold, in the order of the table."""
    asked = [row.cell for row in rows]

    def every(key: str, allowed: Collection[str]) -> set[str]:
        return {getattr(cell, key) for cell in asked} | ({line[key] for line in lines} & set(allowed))

    memories = {cell.memory for cell in asked} | {line["memory"] for line in lines}
    wider = cells(
        request.table,
        every("stream", values()[request.table]),
        () if request.table in SNCL_VARIANTS else every("method", METHODS),
        memories - {0},
    )
    others = [
        row
        for row in gather(planned(wider, request.device, elsewhere=request.elsewhere), 0, there)
        if row.records and row.cell not in asked
    ]
    order = {(cell.stream, cell.title, cell.memory): number for number, cell in enumerate(wider)}
    return sorted([*rows, *others], key=lambda row: order[row.cell.stream, row.cell.title, row.cell.memory])
