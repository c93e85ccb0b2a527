"""The figures of a report as plain data; ``script.js`` draws them.

A figure has views, of which the reader chooses one by its keys (a stream, a read-out, a run ...). A view has series of
numbers and the titles of its axes; colours, bands and hover texts are added where it is drawn, by theme. All text in
here is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sncl.evaluation.metrics import falls
from sncl.report.collect import Group, Run
from sncl.report.stored import Stored
from sncl.runs.summary import READOUT_TITLES, spread

Series = dict[str, Any]
Matrix = Sequence[Sequence[float | None]]
AVERAGE = "average of the tasks seen"
SHOWN_AT_ONCE = 8  # series in a figure, before the reader asks for more


@dataclass(frozen=True)
class View:
    """One state of a figure. ``keys`` answer the figure's selectors; ``layout`` goes to plotly as it is."""

    keys: tuple[str, ...]
    data: list[Series]
    x: str
    y: str
    layout: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """What the reader may choose from, under a title and a sentence on what is shown."""

    name: str
    title: str
    note: str
    selectors: tuple[str, ...]
    views: list[View]


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Rounded; None where there are no numbers."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    mean, deviation = spread(known)
    return round(mean, 4), round(deviation, 4)


def over_seeds(name: str, x: Sequence[Any], columns: Iterable[Sequence[float | None]], **more: Any) -> Series:
    """A series of means, with the deviation at each point."""
    points = [mean_and_deviation(column) for column in columns]
    return {"name": name, "x": list(x), "y": [mean for mean, _ in points], "deviation": [d for _, d in points]} | more


def looks(groups: Sequence[Group]) -> dict[str, dict[str, int]]:
    """How each title looks, the same in all figures: a colour for all sizes of its memory, and a pattern for each."""
    names = {each.title: each.title.replace(f", memory {each.memory}", "") for each in groups}
    colours, sizes = list(dict.fromkeys(names.values())), sorted({each.memory for each in groups if each.memory})
    return {
        each.title: {
            "series": colours.index(names[each.title]),
            "pattern": sizes.index(each.memory) if each.title != names[each.title] and each.memory else 0,
        }
        for each in groups
    }


def by_memory(members: Sequence[Group]) -> dict[str, Sequence[Group]]:
    """All of them and those of each size of the memory, with the ones that need none; many are not shown at once."""
    sizes = sorted({each.memory for each in members if each.memory})
    if len(sizes) < 2:
        return {str(*sizes) if sizes else "–": members}
    found = {str(size): [each for each in members if each.memory in (0, size)] for size in sizes}
    return {"all": members} | found if len(members) <= SHOWN_AT_ONCE else found | {"all": members}


def by_stream(groups: Sequence[Group]) -> dict[str, list[Group]]:
    return {
        stream: [each for each in groups if each.stream == stream]
        for stream in dict.fromkeys(each.stream for each in groups)
    }


def by_readout(groups: Sequence[Group]) -> Iterator[tuple[str, str, list[Group]]]:
    """Streams and read-outs, with the groups that have them; a read-out under its title."""
    for stream, members in by_stream(groups).items():
        for readout in dict.fromkeys(readout for each in members for readout in each.runs[0].matrices()):
            having = [each for each in members if all(readout in run.matrices() for run in each.runs)]
            yield stream, readout, having


def titled(readout: str) -> str:
    return READOUT_TITLES.get(readout, readout)


def tasks(number: int) -> list[str]:
    return [f"task {task + 1}" for task in range(number)]


def curve(matrix: Matrix, length: int, task: int | None) -> list[float | None]:
    """Accuracy after each of ``length`` tasks: of one task from when it is learned, or of those seen (task None).

    What was learned all at once, and so tested once, is the same everywhere.
    """
    once = len(matrix) == 1 and length > 1
    found: list[float | None] = []
    for after in range(length):
        row = matrix[0] if once else matrix[after] if after < len(matrix) else []
        if task is not None:
            found.append(row[task] if task < len(row) and (once or task <= after) else None)
        else:
            known = [value for value in (row if once or length == 1 else row[: after + 1]) if value is not None]
            found.append(sum(known) / len(known) if known else None)
    return found


def accuracy(groups: Sequence[Group]) -> Figure:
    look, views = looks(groups), []
    for stream, readout, having in by_readout(groups):
        shapes = [(len(matrix), len(matrix[0])) for each in having for matrix in of(each, readout)]
        length, width = (max(sizes) for sizes in zip(*shapes, strict=True))
        for memory, members in by_memory(having).items():
            for task in (None, *range(width)):
                keys = (stream, titled(readout), memory, AVERAGE if task is None else f"task {task + 1}")
                curves = {
                    each.title: list(zip(*(curve(matrix, length, task) for matrix in of(each, readout)), strict=True))
                    for each in members
                }
                if length > 1:
                    lines = [
                        over_seeds(title, range(1, length + 1), columns, type="scatter", **look[title])
                        for title, columns in curves.items()
                    ]
                    ticks = {"xaxis": {"dtick": max(1, length // 10)}}
                    views.append(View(keys, lines, "tasks learned", "accuracy, %", ticks))
                else:  # a stream without boundaries is tested once
                    bars = [
                        over_seeds(title, [title], columns, type="bar", **look[title])
                        for title, columns in curves.items()
                    ]
                    views.append(View(keys, bars, "", "accuracy, %", {"showlegend": False}))
    note = "Mean over seeds, with a band of one standard deviation. The curve of a task starts when it is learned."
    return Figure("accuracy", "Accuracy over time", note, ("stream", "read-out", "memory", "shown"), views)


def of(group: Group, readout: str) -> list[Matrix]:
    return [run.matrices()[readout] for run in group.runs]


def matrices(groups: Sequence[Group]) -> Figure:
    views = []
    for stream, readout, members in by_readout(groups):
        for each in members:
            for run in each.runs:
                matrix = run.matrices()[readout]
                heat = {
                    "type": "heatmap",
                    "name": "accuracy, %",
                    "x": [run.task_name(task) for task in range(len(matrix[0]))],
                    "y": [f"after {task + 1}" for task in range(len(matrix))] if len(matrix) > 1 else ["at the end"],
                    "z": [[None if value is None else round(value, 2) for value in row] for row in matrix],
                    "zmin": 0,
                    "zmax": 100,
                }
                views.append(View((stream, titled(readout), each.name(run)), [heat], "tested on", ""))
    note = (
        "Accuracy in percent on every task (columns) after each task (rows). The next task is tested before it is seen."
    )
    return Figure("matrix", "Accuracy matrix", note, ("stream", "read-out", "run"), views)


def forgetting(groups: Sequence[Group]) -> Figure:
    look, views = looks(groups), []
    for stream, readout, having in by_readout(groups):
        several = [each for each in having if len(of(each, readout)[0]) > 1]
        for memory, members in by_memory(several).items():
            bars = []
            for each in members:
                columns = list(zip(*(falls(matrix) for matrix in of(each, readout)), strict=True))
                bars.append(over_seeds(each.title, tasks(len(columns)), columns, type="bar", **look[each.title]))
            if bars:
                views.append(View((stream, titled(readout), memory), bars, "", "forgetting, points"))
    note = "The best accuracy a task had minus that after the last one; mean and deviation over seeds. Lower is better."
    return Figure("forgetting", "Forgetting by task", note, ("stream", "read-out", "memory"), views)


def losses(groups: Sequence[Group]) -> Figure:
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
            views.append(View((each.stream, each.name(run)), lines, "step", "loss"))
    note = "Each term of the loss on the batch of that step, with its weight."
    return Figure("losses", "Training losses", note, ("stream", "run"), views)


def costs(groups: Sequence[Group]) -> Figure:
    look, views = looks(groups), []
    for stream, members in by_stream(groups).items():
        shown = {
            "seconds a run": [[run.result["seconds"] for run in each.runs] for each in members],
            "milliseconds a step": [
                [1000 * run.result["seconds"] / run.result["steps"] for run in each.runs if run.result.get("steps")]
                for each in members
            ],
            "memory, kB": [
                [run.result["memory_bytes_per_sample"] * run.result["memory"] / 1000 for run in each.runs]
                for each in members
            ],
        }
        for title, columns in shown.items():
            bars = [
                over_seeds(each.title, [each.title], [column], type="bar", **look[each.title])
                for each, column in zip(members, columns, strict=True)
            ]
            views.append(View((stream, title), bars, "", title, {"showlegend": False}))
    note = "Time includes evaluation and checkpoints. Memory is what all remembered samples take with all their fields."
    return Figure("costs", "Time and memory spent", note, ("stream", "shown"), views)


def every_run(groups: Sequence[Group]) -> Iterator[tuple[Group, Run]]:
    return ((each, run) for each in groups for run in each.runs)


def moments(run: Run) -> list[str]:
    """When the evaluations of a run took place."""
    if len(run.evaluations) == 1:
        return ["at the end"]
    return [f"after {number + 1}" for number in range(len(run.evaluations))]


def balance(groups: Sequence[Group]) -> Figure:
    views = []
    for each, run in every_run(groups):
        for kind in ("class", "task"):
            counts = [line.get(f"memory_by_{kind}") for line in run.evaluations]
            if not counts or None in counts:
                continue
            bars = [
                {
                    "type": "bar",
                    "name": run.class_name(part) if kind == "class" else f"task {part + 1}",
                    "x": moments(run),
                    "y": column,
                    "series": part,
                }
                for part, column in enumerate(zip(*counts, strict=True))
                if any(column)
            ]
            if bars:
                view = View((each.stream, each.name(run), kind), bars, "", "samples", {"barmode": "stack"})
                views.append(view)
    note = (
        "How many samples of each class the memory holds when a task has ended, and of each task where tasks have "
        "classes of their own. Elsewhere the memory does not know which task a sample came from."
    )
    return Figure("balance", "What the memory holds", note, ("stream", "run", "by"), views)


def stored_losses(groups: Sequence[Group], stored: Mapping[str, Stored]) -> Figure:
    views = []
    for each, found in first_runs(groups, stored):
        if found.losses:
            values = [float(f"{value:.4g}") for value in found.losses]
            bars = [{"type": "histogram", "name": "samples", "x": values, "series": 0}]
            view = View((each.stream, each.name(each.runs[0])), bars, "stored loss", "samples", {"showlegend": False})
            views.append(view)
    note = "The loss kept beside each sample in the memory, as of the last time it was seen; of the first seed."
    return Figure("stored-losses", "Losses in the memory", note, ("stream", "run"), views)


def first_runs(groups: Sequence[Group], stored: Mapping[str, Stored]) -> Iterator[tuple[Group, Stored]]:
    """Each group with what the checkpoint of its first run shows."""
    return ((each, stored[str(each.runs[0].folder)]) for each in groups)


def open_gates(groups: Sequence[Group]) -> Figure:
    views = []
    for each, run in every_run(groups):
        counts = [line["open_neurons"] for line in run.evaluations if "open_neurons" in line]
        if not counts:
            continue
        x = moments(run)[: len(counts)]
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
        views.append(View((each.stream, each.name(run)), lines, "", "open neurons, %", {"yaxis": {"range": [0, 105]}}))
    note = "The part of the neurons of each layer whose gate is open when a task has ended."
    return Figure("open", "Open gates by layer", note, ("stream", "run"), views)


def final_use(groups: Sequence[Group]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """For every run that knows it, which neurons its tasks use at the end, behind the keys of its view."""
    for each, run in every_run(groups):
        if run.evaluations and "neuron_use" in run.evaluations[-1]:
            yield (each.stream, each.name(run)), run.evaluations[-1]["neuron_use"]


def neuron_use(groups: Sequence[Group]) -> Figure:
    views = []
    for keys, use in final_use(groups):
        bars = [
            {
                "type": "bar",
                "name": layer,
                "x": [*tasks(len(parts)), "any task"],
                "y": [round(100 * part, 2) for part in (*parts, use["any"][layer])],
                "series": order,
            }
            for order, (layer, parts) in enumerate(use["used"].items())
        ]
        views.append(View(keys, bars, "", "neurons used, %", {"yaxis": {"range": [0, 105]}}))
    note = (
        "At the end of the run: the part of each gated layer whose mean absolute response to test rows of the task is "
        "at least a tenth of the layer's strongest. What “any task” leaves to 100 % is free."
    )
    return Figure("use", "Neurons each task uses", note, ("stream", "run"), views)


def overlap(groups: Sequence[Group]) -> Figure:
    views = []
    for keys, use in final_use(groups):
        rows = use["overlap"]
        if len(rows) < 2:
            continue
        whole = [
            [round(100 * rows[max(i, j)][min(i, j)], 1) for j in range(len(rows))] for i in range(len(rows))
        ]  # symmetric
        names = tasks(len(rows))
        heat = {"type": "heatmap", "name": "shared, %", "x": names, "y": names, "z": whole, "zmin": 0, "zmax": 100}
        views.append(View(keys, [heat], "", ""))
    note = "Of the neurons that either of two tasks uses, the part that both use, in percent, at the end of the run."
    return Figure("overlap", "Neurons tasks share", note, ("stream", "run"), views)


def gate_histogram(groups: Sequence[Group], stored: Mapping[str, Stored]) -> Figure:
    views = []
    for each, found in first_runs(groups, stored):
        bars = [
            {"type": "histogram", "name": layer, "x": values, "series": order}
            for order, (layer, values) in enumerate(found.log_lambda.items())
        ]
        if bars:
            key = (each.stream, each.name(each.runs[0]))
            views.append(View(key, bars, "log λ", "neurons", {"barmode": "stack"}))
    note = "Noise against signal of every gate at the end, of the first seed. From 0 on, or sooner, a gate is closed."
    return Figure("lambda", "Gates by log λ", note, ("stream", "run"), views)
