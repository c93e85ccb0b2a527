"""What ``sncl bench`` measured, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sncl.cli.console import out, print_table

if TYPE_CHECKING:
    from sncl.bench.first_step import FirstStep
    from sncl.bench.rows import RowTime
    from sncl.bench.single import Overhead, StepTime
    from sncl.bench.start import StartTime
    from sncl.bench.suite import Measured


def show(measured: Measured, place: str) -> None:
    """A table for everything that was measured on ``place``."""
    tables: list[tuple[Sequence[object], Callable[[], None]]] = [
        (measured.steps, lambda: show_steps(measured.steps, place)),
        (measured.outside, lambda: show_outside(measured.outside)),
        (measured.single_rows, lambda: show_single_rows(measured.single_rows, place)),
        (measured.start, lambda: show_start(measured.start)),
        (measured.first_steps, lambda: show_first_steps(measured.first_steps, place)),
    ]
    for number, table in enumerate(table for rows, table in tables if rows):
        if number:
            out.print()
        table()


def show_steps(rows: Sequence[StepTime], place: str) -> None:
    """How long a step takes, beside the bound."""
    headings = ["stream", "method", "memory", "runs", "ms a step", "bound, ms", "ratio", "images/s", "peak MB"]
    cells = [
        [
            row.stream,
            row.method,
            str(row.memory),
            str(row.runs),
            f"{row.ms_per_step:.2f}",
            f"{row.bound_ms:.2f}",
            f"{row.ratio:.2f}",
            f"{row.images_per_s:,.0f}",
            f"{row.peak_mb:,.0f}",
        ]
        for row in rows
    ]
    print_table(
        headings, cells, title=f"one step on {place}; with several runs at once, time divided by the steps of all"
    )


def show_outside(outside: Sequence[Overhead]) -> None:
    """How long a whole run spends outside its steps."""
    headings = ["stream", "method", "outside steps", "tests", "tests, s", "checkpoints, s", "losses, s", "steps, s"]
    cells = [
        [
            each.stream,
            each.method,
            f"{each.percent:.1f} %",
            f"{each.tests_percent:.1f} %",
            f"{each.evaluation_s:.1f}",
            f"{each.checkpoints_s:.1f}",
            f"{each.logging_s:.1f}",
            f"{each.steps_s:.0f}",
        ]
        for each in outside
    ]
    print_table(headings, cells, title="a whole run, reckoned from its parts")


def show_single_rows(rows: Sequence[RowTime], place: str) -> None:
    """How fast one row after the other is learned and predicted."""
    headings = ["through", "method", "features", "rows/s", "ms a row", "bound, ms", "ratio"]
    cells = [
        [
            each.through,
            each.method,
            str(each.features),
            f"{each.rows_per_s:,.0f}",
            f"{each.ms_per_row:.2f}",
            f"{each.bound_ms:.2f}",
            f"{each.ratio:.2f}",
        ]
        for each in rows
    ]
    print_table(headings, cells, title=f"one row at a time on {place}, learned and predicted")


def show_start(started: Sequence[StartTime]) -> None:
    """How long whole processes take."""
    cells = [[each.what, f"{each.seconds:.2f}", f"{each.ratio:.2f}"] for each in started]
    print_table(["process", "s", "ratio"], cells, title="first seconds")


def show_first_steps(first: Sequence[FirstStep], place: str) -> None:
    """How long it takes to compile and capture a step."""
    headings = ["stream", "method", "cold, s", "warm, s", "ratio", "eager, s", "then, ms", "eager, ms", "pays after"]
    cells = [
        [
            each.stream,
            each.method,
            f"{each.cold_s:.1f}",
            f"{each.warm_s:.1f}",
            f"{each.ratio:.2f}",
            f"{each.eager_s:.1f}",
            f"{each.graph_ms:.2f}",
            f"{each.eager_ms:.2f}",
            "never" if each.pays_after is None else f"{each.pays_after:,} steps",
        ]
        for each in first
    ]
    print_table(headings, cells, title=f"the first step of a run on {place}: with nothing compiled before, and again")
