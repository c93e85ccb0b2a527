"""What training was like: its losses, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from sncl.report.figures.figure import Figure, FigureView, every_run, groups_by_stream, looks, seed_series
from sncl.report.groups import RunGroup


def loss_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for each, run in every_run(groups):
        names = dict.fromkeys(name for line in run.losses for name in line.get("losses", {}))
        lines = []
        for order, name in enumerate(names):
            points = [(line["step"], line["losses"][name]) for line in run.losses if name in line.get("losses", {})]
            x, y = zip(*points, strict=True)
            values = [float(f"{value:.5g}") for value in y]
            lines.append({"type": "scatter", "name": name, "x": x, "y": values, "series": order, "thin": True})
        if lines:
            views.append(FigureView((each.stream, each.name(run)), lines, "step", "loss"))
    note = "Each term of the loss on the batch of that step, with its weight."
    return Figure("losses", "Training losses", note, ("stream", "run"), views)


def cost_figure(groups: Sequence[RunGroup]) -> Figure:
    look, views = looks(groups), []
    for stream, members in groups_by_stream(groups).items():
        for title in ("seconds a run", "milliseconds a step", "memory, kB"):
            bars = [
                seed_series(each.title, [each.title], [costs(each)[title]], type="bar", **look[each.title])
                for each in members
            ]
            views.append(FigureView((stream, title), bars, "", title, {"showlegend": False}))
    note = "Time includes evaluation and checkpoints. Memory is what all remembered samples take with all their fields."
    return Figure("costs", "Time and memory spent", note, ("stream", "shown"), views)


def costs(group: RunGroup) -> dict[str, list[float]]:
    """What each seed took, by title."""
    results = [run.result for run in group.runs]
    return {
        "seconds a run": [each.seconds for each in results],
        "milliseconds a step": [1000 * each.seconds / each.steps for each in results if each.steps],
        "memory, kB": [each.memory_bytes_per_sample * each.memory / 1000 for each in results],
    }
