"""``sncl reproduce``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sncl.cli.completion import complete_method, complete_stream, complete_table
from sncl.cli.console import err, out, print_json, print_note, print_table
from sncl.cli.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    OnOption,
    PrecisionOption,
    ReportOption,
    SlurmOption,
    TensorboardOption,
    fleet_of,
    names,
)
from sncl.cli.reports import check_outputs, report_on

if TYPE_CHECKING:
    from sncl.paper.records import TableRow
    from sncl.paper.reproduce import Attempt, Request
    from sncl.runs.job import Job


def reproduce_command(
    table: Annotated[str, typer.Argument(help="table1, table2, ablation or layers", autocompletion=complete_table)],
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help="A stream of the table; may be repeated (default: all but seq-cifar10 and seq-tinyimagenet, which "
            "need a GPU for hours and days)",
            autocompletion=complete_stream,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `sncl list`, for table1 and table2; may be repeated (default: er der derpp sncl)",
            autocompletion=complete_method,
        ),
    ] = None,
    memory: Annotated[
        list[int] | None, typer.Option(help="Samples that may be kept; may be repeated (default: the paper's)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 .. N-1; others that are there count as well")] = 10,
    data: DataOption = None,
    runs: Annotated[Path, typer.Option(help="Where runs are looked for and made")] = Path("runs"),
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    results: Annotated[
        Path | None, typer.Option(help="Read TABLE.jsonl from this folder; write it and TABLE.md there")
    ] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Show what is there and run nothing")] = False,
    tensorboard: TensorboardOption = False,
    report: ReportOption = None,
    on: OnOption = "local",
    slurm: SlurmOption = None,
    as_json: JsonOption = False,
) -> None:
    """A table of the paper beside our numbers: finds the runs that are there and makes those that are missing.

    A run from another device counts if its settings agree. "equal": the difference is at most twice its standard error.
    """
    from sncl.cli.jobs import run_jobs
    from sncl.paper.comparison import HEADINGS, comparison_json, footnote_of, lines_by_stream, open_commands
    from sncl.paper.records import folders_of
    from sncl.paper.reproduce import Request, reproduce

    check_outputs(report, tensorboard)
    fleet = fleet_of(on, slurm)
    asked = (table, names(stream), names(method), memory or [], seeds)
    request = Request(*asked, runs, results, data, device, precision, collect, tensorboard, fleet is not None)

    def run(jobs: list[Job], attempt: Attempt) -> list[str | None]:
        return run_jobs(jobs, err, attempt, fleet)

    rows, failure = reproduce(request, run, err.print, command_line)
    command = partial(command_line, options=place_options(request))
    if as_json:
        print_json(comparison_json(table, rows, command))
    else:
        for name, lines in lines_by_stream(table, rows).items():
            print_table(HEADINGS, lines, title=name)
            out.print()
        print_note(footnote_of(rows))
        if missing := open_commands(table, rows, command):
            out.print("open; to fill:", *missing, sep="\n  ", soft_wrap=True)
    if report is not None and ((folders := folders_of(rows, runs)) or failure is None):
        report_on(folders, report)
    if failure is not None:
        raise failure


def command_line(table: str, rows: Sequence[TableRow], options: Sequence[str] = ()) -> str:
    """The command that reproduces these rows; variants of one stream are made together."""
    from sncl.paper.tables import SNCL_VARIANTS

    words = ["sncl", "reproduce", table]
    for stream in dict.fromkeys(row.cell.stream for row in rows):
        words += ["--stream", stream]
    for method in dict.fromkeys(row.cell.method for row in rows if table not in SNCL_VARIANTS):
        words += ["--method", method]
    for memory in dict.fromkeys(row.cell.memory for row in rows if row.cell.memory):
        words += ["--memory", str(memory)]
    return shlex.join([*words, "--seeds", str(max(row.reach() for row in rows)), *options])


def place_options(request: Request) -> list[str]:
    """The options that say where things lie and run, unless they have their usual values."""
    chosen = {
        "--runs": None if request.runs == Path("runs") else request.runs,
        "--results": request.results,
        "--data": request.data,
        "--device": None if request.device == "auto" else request.device,
        "--precision": None if request.precision == "auto" else request.precision,
    }
    return [word for name, value in chosen.items() if value is not None for word in (name, str(value))]
