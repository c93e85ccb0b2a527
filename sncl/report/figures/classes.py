"""How well each class is told from the others: recall by class, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence

from sncl.evaluation.by_class import ByClass
from sncl.report.figures.figure import (
    PERCENT,
    Figure,
    FigureView,
    Series,
    groups_by_memory,
    groups_by_stream,
    looks,
    seed_series,
)
from sncl.report.groups import RunGroup

MOST_BARS = 200  # classes beside each other
MOST_CELLS = 50  # classes in a matrix that can still be read
CATEGORIES = {"type": "category"}  # names that are numbers are no scale


def told_classes(group: RunGroup) -> list[ByClass]:
    """What each seed says of the classes; nothing where one of them, of an older version, does not."""
    found = [run.result.by_class for run in group.runs]
    return [each for each in found if each is not None] if None not in found else []


def class_titles(group: RunGroup, classes: int) -> list[str]:
    return [group.runs[0].class_name(label).removeprefix("class ") for label in range(classes)]


def recall_figure(groups: Sequence[RunGroup]) -> Figure:
    look, views = looks(groups), []
    for stream, having in groups_by_stream(groups).items():
        told = [each for each in having if (found := told_classes(each)) and len(found[0].samples) <= MOST_BARS]
        for memory, members in groups_by_memory(told).items():
            bars = []
            for each in members:
                found = told_classes(each)
                columns = list(zip(*(seed.recall for seed in found), strict=True))
                titles = class_titles(each, len(columns))
                bars.append(seed_series(each.title, titles, columns, type="bar", **look[each.title]))
            if bars:
                views.append(FigureView((stream, memory), bars, "class", "recall, %", PERCENT | {"xaxis": CATEGORIES}))
    note = (
        "The share of each class's test samples that is answered right after the last task, of the main read-out; mean "
        "and deviation over seeds."
    )
    return Figure("recall", "Recall by class", note, ("stream", "memory"), views)


def confusion_figure(groups: Sequence[RunGroup]) -> Figure:
    views = []
    for each in groups:
        found = told_classes(each)
        if found and found[0].confusion is not None and len(found[0].samples) <= MOST_CELLS:
            map_ = confusion_map(each, found)
            axes = {"xaxis": CATEGORIES, "yaxis": CATEGORIES}
            views.append(FigureView((each.stream, each.title), [map_], "answered", "class", axes))
    note = (
        "How the test samples of each class (rows) are answered (columns) after the last task, in percent of the "
        "class; all seeds together."
    )
    return Figure("confusion", "Confusion matrix", note, ("stream", "method"), views)


def confusion_map(group: RunGroup, found: Sequence[ByClass]) -> Series:
    matrices = [each.confusion or [] for each in found]
    titles = class_titles(group, len(matrices[0]))
    counts = [[sum(cell) for cell in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
    return {
        "type": "heatmap",
        "name": "answers, %",
        "x": titles,
        "y": titles,
        "z": [[round(100 * count / sum(row), 1) if sum(row) else None for count in row] for row in counts],
        "zmin": 0,
        "zmax": 100,
    }
