"""``sncl report``, and the report or log that other commands write on the way."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from sncl.cli.completion import complete_run
from sncl.cli.console import err, say


def check_outputs(report: Path | None, tensorboard: bool = False) -> None:
    """Refuse a report or a log that could not be written, before the runs."""
    if tensorboard:
        from sncl.training.tensorboard import check_tensorboard

        check_tensorboard()
    if report is not None:
        from sncl.report import check_report

        check_report(report)


def report_on(folders: Iterable[Path], report: Path | None) -> None:
    """Write the report that was asked for."""
    if report is not None:
        from sncl.report import write_report

        write_report(folders, report, lambda text: say(f"note: {text}"))
        err.print(f"report: {report}")


def report_command(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold run folders", autocompletion=complete_run)
    ],
    file: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page")] = Path("report.html"),
) -> None:
    """Turn runs into one web page that can be mailed: tables, charts, the memory's images.

    Runs that differ in nothing but the seed are shown as mean and deviation; unfinished ones are left out.
    """
    report_on(runs, file)
