"""Sparsity: which neurons are open, which of them each task uses, and where their gates stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sncl.report.figures.figure import PERCENT, Figure, FigureView, evaluation_titles, every_run, task_titles
from sncl.report.groups import RunGroup
from sncl.report.stored import Stored


def open_neurons_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for each, run in every_run(groups):
        counts = [line["open_neurons"] for line in run.evaluations if "open_neurons" in line]
        if not counts:
            continue
        x = evaluation_titles(run)[: len(counts)]
        lines = [
            {
                "type": "scatter" if len(counts) > 1 else "bar",
                "name": layer,
                "x": x,
                "y": [round(100 * found[layer][0] / found[layer][1], 2) for found in counts],
                "series": order,
            }
            for order, layer in enumerate(counts[0])
        ]
        views.append(FigureView((each.stream, each.name(run)), lines, "", "open neurons, %", PERCENT))
    note = "The fraction of the neurons of each layer that are open when a task has ended."
    return Figure("open", "Open neurons by layer", note, ("stream", "run"), views)


def final_use(groups: Sequence[RunGroup]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """For every run that knows it, which neurons its tasks use at the end, behind the keys of its view."""
    for each, run in every_run(groups):
        if run.evaluations and "neuron_use" in run.evaluations[-1]:
            yield (each.stream, each.name(run)), run.evaluations[-1]["neuron_use"]


def neuron_use_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for keys, use in final_use(groups):
        bars = [
            {
                "type": "bar",
                "name": layer,
                "x": [*task_titles(len(parts)), "any task"],
                "y": [round(100 * part, 2) for part in (*parts, use["any"][layer])],
                "series": order,
            }
            for order, (layer, parts) in enumerate(use["used"].items())
        ]
        views.append(FigureView(keys, bars, "", "neurons used, %", PERCENT))
    note = (
        "At the end of the run: the fraction of each gated layer whose mean absolute activation on test samples of the "
        "task is at least a tenth of the layer's strongest. What “any task” leaves to 100 % is free."
    )
    return Figure("use", "Neurons each task uses", note, ("stream", "run"), views)


def overlap_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for keys, use in final_use(groups):
        rows = use["overlap"]
        if len(rows) < 2:
            continue
        tasks = range(len(rows))
        whole = [[round(100 * rows[max(i, j)][min(i, j)], 1) for j in tasks] for i in tasks]  # symmetric
        names = task_titles(len(rows))
        heat = {"type": "heatmap", "name": "shared, %", "x": names, "y": names, "z": whole, "zmin": 0, "zmax": 100}
        views.append(FigureView(keys, [heat], "", ""))
    note = "Of the neurons that either of two tasks uses, the percentage that both use, at the end of the run."
    return Figure("overlap", "Neurons tasks share", note, ("stream", "run"), views)


def log_lambda_figure(groups: Sequence[RunGroup], stored: Mapping[str, Stored]) -> Figure:
    views = []
    for each in groups:
        bars = [
            {"type": "histogram", "name": layer, "x": values, "series": order}
            for order, (layer, values) in enumerate(stored[each.first_folder].log_lambda.items())
        ]
        if bars:
            keys = (each.stream, each.name(each.runs[0]))
            views.append(FigureView(keys, bars, "log λ", "neurons", {"barmode": "stack"}))
    note = "Noise to signal of every gate at the end, of the first seed. From 0 on it is closed."
    return Figure("lambda", "Gates by log λ", note, ("stream", "run"), views)
