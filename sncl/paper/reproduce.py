"""Reproduce a table of the paper: find the runs that are there, make those that are missing, write what came out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from sncl.commands import Job, Report, run_jobs, work
from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.paper.comparison import markdown
from sncl.paper.records import Known, Record, Row, known, of_lines, read_lines, write_lines
from sncl.paper.tables import PAPER_SEEDS, VARIANTS, Cell, cells, values
from sncl.runs.experiment import Experiment, decision, plan
from sncl.training.checkpoint import write_atomically

Planned = list[tuple[Cell, Experiment]]
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

    def options(self) -> list[str]:
        """Those that say where things lie, as words of a command line."""
        chosen = {
            "--runs": None if self.runs == Path("runs") else self.runs,
            "--results": self.results,
            "--data": self.data,
            "--device": None if self.device == "auto" else self.device,
            "--precision": None if self.precision == "auto" else self.precision,
        }
        return [word for name, value in chosen.items() if value is not None for word in (name, str(value))]


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


def planned(wanted: Sequence[Cell], device: str, precision: str = "auto") -> Planned:
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
            )
            found.append((cell, experiment))
        except SnclError as error:
            refused[cell.method] = error
    suited = {cell.method for cell, _ in found}
    for method, reason in refused.items():
        if method not in suited:
            raise reason
    return found


def gather(plans: Planned, seeds: int, there: Known) -> list[Row]:
    """Each cell with the results that are there."""
    return [Row(cell, experiment, seeds, there.get(decision(experiment.identity()), {})) for cell, experiment in plans]


def missing_jobs(rows: Sequence[Row], runs: Path, data: Path | None, tensorboard: bool = False) -> list[Job]:
    """The runs that the rows still want, each in the folder ``sncl train`` gives it."""
    wanted = (replace(row.experiment, seed=seed) for row in rows for seed in row.missing())
    jobs = {each.name(): Job(each, runs / each.name(), data, tensorboard=tensorboard) for each in wanted}
    return list(jobs.values())


def attempt(job: Job, report: Report) -> str | None:
    """Perform a job; in words, why it failed."""
    try:
        work(job, report)
    except SnclError as error:
        return str(error)
    return None


def run_missing(jobs: list[Job], console: Console) -> Exception | None:
    """Run the jobs; one that fails stops no other. What went wrong is returned, so that the rest can still be shown."""
    try:
        reasons = run_jobs(jobs, console, attempt)
    except Exception as error:
        return error
    failed = {job.folder.name: reason for job, reason in zip(jobs, reasons, strict=True) if reason is not None}
    return Failures(failed, len(jobs)) if failed else None


def reproduce(request: Request, console: Console) -> tuple[list[Row], Exception | None]:
    """The rows asked for, once the missing runs are made, and what went wrong with those.

    Where results are kept, ``TABLE.md`` and ``TABLE.jsonl`` are written there. They also keep the rows that an earlier
    call wrote and this one did not ask for, unless settings have changed since.
    """
    if request.seeds < 1:
        raise SnclError(f"--seeds is at least 1, not {request.seeds}")
    wanted = cells(request.table, request.streams, request.methods, request.memories)
    plans = planned(wanted, request.device, request.precision)
    if request.results is not None:
        request.results.mkdir(parents=True, exist_ok=True)
    rows = gather(plans, request.seeds, known(request.runs, earlier_lines(request)))
    failure = None
    if not request.collect and (jobs := missing_jobs(rows, request.runs, request.data, request.tensorboard)):
        console.print(f"runs: {sum(len(row.records) for row in rows)} there, {len(jobs)} to be made")
        failure = run_missing(jobs, console)
    lines = earlier_lines(request)  # once more: another process may have written meanwhile
    there = known(request.runs, lines)
    rows = gather(plans, request.seeds, there)
    if request.results is not None:
        everything = with_earlier(request, rows, lines, there)
        page = markdown(request.table, everything, failure.names if isinstance(failure, Failures) else ())
        write_lines(request.results / f"{request.table}.jsonl", everything)
        write_atomically(request.results / f"{request.table}.md", page.encode())
        current = {decision(row.experiment.identity()) for row in everything}
        if stale := sum(what not in current for what, _ in of_lines(lines)):
            console.print(f"note: lines of {request.table}.jsonl left out because settings have changed: {stale}")
    return rows, failure


def earlier_lines(request: Request) -> list[Record]:
    return [] if request.results is None else read_lines(request.results / f"{request.table}.jsonl")


def with_earlier(request: Request, rows: list[Row], lines: Sequence[Record], there: Known) -> list[Row]:
    """These rows and those of the lines that still hold, in the order of the table."""
    asked = [row.cell for row in rows]

    def every(key: str, allowed: Collection[str]) -> set[str]:
        return {getattr(cell, key) for cell in asked} | ({line[key] for line in lines} & set(allowed))

    memories = {cell.memory for cell in asked} | {line["memory"] for line in lines}
    wider = cells(
        request.table,
        every("stream", values()[request.table]),
        () if request.table in VARIANTS else every("method", METHODS),
        memories - {0},
    )
    others = [row for row in gather(planned(wider, request.device), 0, there) if row.records and row.cell not in asked]
    order = {(cell.stream, cell.title, cell.memory): number for number, cell in enumerate(wider)}
    return sorted([*rows, *others], key=lambda row: order[row.cell.stream, row.cell.title, row.cell.memory])
