"""What the memory holds: how many samples of each class and task, and the losses kept beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sncl.report.collect import FinishedRun
from sncl.report.figures.figure import Figure, FigureView, Series, evaluation_titles, every_run
from sncl.report.groups import RunGroup
from sncl.report.stored import Stored


def balance_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for each, run in every_run(groups):
        for kind in ("class", "task"):
            if bars := balance_bars(run, kind):
                keys = (each.stream, each.name(run), kind)
                views.append(FigureView(keys, bars, "", "samples", {"barmode": "stack"}))
    note = (
        "How many samples of each class the memory holds when a task has ended, and of each task where tasks have "
        "classes of their own. Elsewhere the memory does not know which task a sample came from."
    )
    return Figure("balance", "What the memory holds", note, ("stream", "run", "by"), views)


def balance_bars(run: FinishedRun, kind: str) -> list[Series]:
    """A series for every class or task in the memory; none where they were not counted."""
    counts = [line.get(f"memory_by_{kind}") for line in run.evaluations]
    if not counts or None in counts:
        return []
    return [
        {
            "type": "bar",
            "name": run.class_name(part) if kind == "class" else f"task {part + 1}",
            "x": evaluation_titles(run),
            "y": column,
            "series": part,
        }
        for part, column in enumerate(zip(*counts, strict=True))
        if any(column)
    ]


def stored_loss_figure(groups: Sequence[RunGroup], stored: Mapping[str, Stored]) -> Figure:
    views = []
    for each in groups:
        if losses := stored[each.first_folder].losses:
            values = [float(f"{value:.4g}") for value in losses]
            bars = [{"type": "histogram", "name": "samples", "x": values, "series": 0}]
            keys = (each.stream, each.name(each.runs[0]))
            views.append(FigureView(keys, bars, "stored loss", "samples", {"showlegend": False}))
    note = "The loss kept beside each sample in the memory, as of the last time it was seen; of the first seed."
    return Figure("stored-losses", "Losses in the memory", note, ("stream", "run"), views)
