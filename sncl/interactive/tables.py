"""Results as rows of a frame, as text and as HTML."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from typing import Any

from sncl.live.drawing import bare_table
from sncl.live.terminal import SafeConsole, printable
from sncl.report.figures.accuracy import accuracy_curve
from sncl.report.groups import RunGroup
from sncl.runs.folders import RunFiles
from sncl.runs.result import Result
from sncl.runs.summary import SeedGroup, footnote, has_imbalance, mean_std, readouts, results_table

TEXT_WIDTH = 200  # nothing is cut
CONDITIONS = ("epochs", "tasks", "validation", "device", "protocol")
SVG_SIZE = (96, 24)  # pixels
CELL = ' style="text-align:left;padding:2px 12px 2px 0"'
Rows = list[dict[str, Any]]


def measures(result: Result, shown: Sequence[str], uneven: bool) -> dict[str, Any]:
    """The numbers of a run, by name; where classes are ``uneven``, what these make of its accuracy."""
    return {
        **{readout: result.accuracy.get(readout) for readout in shown},
        **({"balanced": result.balanced_accuracy, "majority": result.majority} if uneven else {}),
        "forgetting": result.forgetting,
        "bwt": result.bwt,
        "open": result.active_fraction,
        "seconds": result.seconds,
    }


def run_rows(runs: Sequence[RunFiles]) -> Rows:
    """One row for each run, with the settings in which they differ."""
    settings = [run.result.manifest.settings | {key: run.experiment.get(key) for key in CONDITIONS} for run in runs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    differing = [name for name in names if len({str(each[name]) for each in settings if name in each}) > 1]
    shown, uneven = readouts(run.result for run in runs), has_imbalance(run.result for run in runs)
    return [
        {
            **{key: getattr(run.result, key) for key in ("stream", "method", "memory", "seed")},
            **measures(run.result, shown, uneven),
            "collapsed": run.result.has_collapsed,
            **{name: each.get(name) for name in differing},
            "folder": str(run.folder),
        }
        for run, each in zip(runs, settings, strict=True)
    ]


def group_rows(groups: Sequence[RunGroup]) -> Rows:
    """One row for each group of seeds: means and standard deviations."""
    results = [run.result for each in groups for run in each.runs]
    shown, uneven, rows = readouts(results), has_imbalance(results), []
    for each in groups:
        row: dict[str, Any] = {"stream": each.stream, "method": each.title, "memory": each.memory}
        row["seeds"] = len(each.runs)
        several = [measures(run.result, shown, uneven) for run in each.runs]
        for name in several[0]:
            values = [one[name] for one in several if one[name] is not None]
            mean, deviation = mean_std(values) if values else (None, None)
            row |= {name: mean, f"{name} std": deviation if len(values) > 1 else None}
        rows.append(row)
    return rows


def seed_groups(groups: Sequence[RunGroup]) -> list[SeedGroup]:
    """The same groups without their files."""
    return [
        SeedGroup(each.stream, each.method, each.memory, tuple(run.result for run in each.runs), each.title)
        for each in groups
    ]


def summary_table(groups: Sequence[RunGroup]) -> tuple[list[str], list[list[str]], str | None]:
    """The table of ``sncl train``, and what stands below it."""
    several = seed_groups(groups)
    results = [result for each in several for result in each.results]
    return *results_table(results, several), footnote(results)


def as_text(groups: Sequence[RunGroup]) -> str:
    """The table as plain text."""
    if not groups:
        return "Results of no runs"
    headings, cells, note = summary_table(groups)
    console = SafeConsole(
        file=io.StringIO(), width=TEXT_WIDTH, highlight=False, markup=False, emoji=False, color_system=None,
        force_jupyter=False,
    )  # fmt: skip
    console.print(bare_table(headings, cells))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    return "\n".join([*lines, *([printable(note)] if note else [])])


def as_html(groups: Sequence[RunGroup]) -> str:
    """The same as HTML, with a small curve of the average accuracy over the tasks seen."""
    if not groups:
        return "<p>Results of no runs</p>"
    headings, cells, note = summary_table(groups)
    curve = any(len(mean_curve(each)) > 1 for each in groups)
    head = "".join(f"<th{CELL}>{escape(text)}</th>" for text in [*headings, *["over tasks"] * curve])
    body = []
    for each, row in zip(groups, cells, strict=True):
        drawn = f"<td{CELL}>{svg_curve(mean_curve(each))}</td>" if curve else ""
        body.append("<tr>" + "".join(f"<td{CELL}>{escape(printable(text))}</td>" for text in row) + drawn + "</tr>")
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{below}"


def mean_curve(group: RunGroup) -> list[float]:
    """The average accuracy of the tasks seen after each task, the mean over seeds."""
    curves = [
        accuracy_curve(run.result.accuracy_matrix, len(run.result.accuracy_matrix), None) for run in group.runs
    ]  # fmt: skip
    columns = ([value for value in column if value is not None] for column in zip(*curves, strict=True))
    return [sum(column) / len(column) for column in columns if column]


def svg_curve(values: Sequence[float]) -> str:
    """Percentages from 0 to 100 as a line."""
    if len(values) < 2:
        return ""
    width, height = SVG_SIZE
    points = " ".join(
        f"{2 + (width - 4) * place / (len(values) - 1):.1f},{2 + (height - 4) * (1 - value / 100):.1f}"
        for place, value in enumerate(values)
    )
    title = f"{values[0]:.1f} % after the first task, {values[-1]:.1f} % after the last"
    return (
        f'<svg width="{width}" height="{height}" role="img"><title>{title}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
