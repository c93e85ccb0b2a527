"""Accuracy over time, the accuracy matrix and forgetting."""

from __future__ import annotations

from collections.abc import Sequence

from sncl.evaluation.metrics import Matrix, falls
from sncl.report.collect import FinishedRun
from sncl.report.figures.figure import (
    Figure,
    FigureView,
    Series,
    groups_by_memory,
    groups_by_readout,
    looks,
    readout_title,
    seed_series,
    task_titles,
)
from sncl.report.groups import RunGroup

AVERAGE = "average of the tasks seen"


def accuracy_figure(groups: Sequence[RunGroup]) -> Figure:
    look, views = looks(groups), []
    for stream, readout, having in groups_by_readout(groups):
        shapes = [(len(matrix), len(matrix[0])) for each in having for matrix in matrices_of(each, readout)]
        length, width = (max(sizes) for sizes in zip(*shapes, strict=True))
        for memory, members in groups_by_memory(having).items():
            for task in (None, *range(width)):
                keys = (stream, readout_title(readout), memory, AVERAGE if task is None else f"task {task + 1}")
                curves = {
                    each.title: [accuracy_curve(matrix, length, task) for matrix in matrices_of(each, readout)]
                    for each in members
                }
                views.append(accuracy_view(keys, curves, length, look))
    note = "Mean over seeds, with a band of one standard deviation. The curve of a task starts when it is learned."
    return Figure("accuracy", "Accuracy over time", note, ("stream", "read-out", "memory", "shown"), views)


def accuracy_view(
    keys: tuple[str, ...],
    curves: dict[str, list[list[float | None]]],
    length: int,
    look: dict[str, dict[str, int]],
) -> FigureView:
    """Curves over tasks by title, one for each seed; bars where a stream without boundaries is tested once."""
    columns = {title: list(zip(*each, strict=True)) for title, each in curves.items()}
    if length == 1:
        bars = [seed_series(title, [title], each, type="bar", **look[title]) for title, each in columns.items()]
        return FigureView(keys, bars, "", "accuracy, %", {"showlegend": False})
    lines = [
        seed_series(title, range(1, length + 1), each, type="scatter", **look[title]) for title, each in columns.items()
    ]
    ticks = {"xaxis": {"dtick": max(1, length // 10)}}
    return FigureView(keys, lines, "tasks learned", "accuracy, %", ticks)


def accuracy_curve(matrix: Matrix, length: int, task: int | None) -> list[float | None]:
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


def matrices_of(group: RunGroup, readout: str) -> list[Matrix]:
    """The accuracy matrix of each seed."""
    return [run.result.measures[readout].accuracy_matrix for run in group.runs]


def matrix_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for stream, readout, members in groups_by_readout(groups):
        for each in members:
            for run, matrix in zip(each.runs, matrices_of(each, readout), strict=True):
                keys = (stream, readout_title(readout), each.name(run))
                views.append(FigureView(keys, [heat_map(run, matrix)], "tested on", ""))
    note = (
        "Accuracy in percent on every task (columns) after each task (rows). The next task is tested before it is seen."
    )
    return Figure("matrix", "Accuracy matrix", note, ("stream", "read-out", "run"), views)


def heat_map(run: FinishedRun, matrix: Matrix) -> Series:
    return {
        "type": "heatmap",
        "name": "accuracy, %",
        "x": [run.task_name(task) for task in range(len(matrix[0]))],
        "y": [f"after {task + 1}" for task in range(len(matrix))] if len(matrix) > 1 else ["at the end"],
        "z": [[None if value is None else round(value, 2) for value in row] for row in matrix],
        "zmin": 0,
        "zmax": 100,
    }


def forgetting_figure(groups: Sequence[RunGroup]) -> Figure:
    look, views = looks(groups), []
    for stream, readout, having in groups_by_readout(groups):
        several = [each for each in having if len(matrices_of(each, readout)[0]) > 1]
        for memory, members in groups_by_memory(several).items():
            bars = []
            for each in members:
                columns = list(zip(*(falls(matrix) for matrix in matrices_of(each, readout)), strict=True))
                titles = task_titles(len(columns))
                bars.append(seed_series(each.title, titles, columns, type="bar", **look[each.title]))
            if bars:
                views.append(FigureView((stream, readout_title(readout), memory), bars, "", "forgetting, points"))
    note = "The best accuracy a task had minus that after the last one; mean and deviation over seeds. Lower is better."
    return Figure("forgetting", "Forgetting by task", note, ("stream", "read-out", "memory"), views)
