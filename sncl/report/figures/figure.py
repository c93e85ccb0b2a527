"""What a figure is, and what all figures share: series over seeds, colours, and the groups they are made of.

A figure has views, of which the reader chooses one by its keys (a stream, a read-out, a run ...). A view has series of
numbers and the titles of its axes; colours, bands and hover texts are added where it is drawn, by theme. All text in
here is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sncl.report.collect import FinishedRun
from sncl.report.groups import RunGroup
from sncl.runs.summary import READOUT_TITLES, mean_std

Series = dict[str, Any]
SHOWN_AT_ONCE = 8  # series in a figure, before the reader asks for more
PERCENT = {"yaxis": {"range": [0, 105]}}


@dataclass(frozen=True)
class FigureView:
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
    views: list[FigureView]


def seed_series(name: str, x: Sequence[Any], columns: Iterable[Sequence[float | None]], **more: Any) -> Series:
    """A series of means over seeds, with the deviation at each point."""
    points = [mean_and_deviation(column) for column in columns]
    return {"name": name, "x": list(x), "y": [mean for mean, _ in points], "deviation": [d for _, d in points]} | more


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Rounded; None where there are no numbers."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    mean, deviation = mean_std(known)
    return round(mean, 4), round(deviation, 4)


def looks(groups: Sequence[RunGroup]) -> dict[str, dict[str, int]]:
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


def groups_by_memory(members: Sequence[RunGroup]) -> dict[str, Sequence[RunGroup]]:
    """All of them and those of each size of the memory, with the ones that need none; many are not shown at once."""
    sizes = sorted({each.memory for each in members if each.memory})
    if len(sizes) < 2:
        return {str(*sizes) if sizes else "–": members}
    found = {str(size): [each for each in members if each.memory in (0, size)] for size in sizes}
    return {"all": members} | found if len(members) <= SHOWN_AT_ONCE else found | {"all": members}


def groups_by_stream(groups: Sequence[RunGroup]) -> dict[str, list[RunGroup]]:
    return {
        stream: [each for each in groups if each.stream == stream]
        for stream in dict.fromkeys(each.stream for each in groups)
    }


def groups_by_readout(groups: Sequence[RunGroup]) -> Iterator[tuple[str, str, list[RunGroup]]]:
    """Streams and read-outs, with the groups that have them."""
    for stream, members in groups_by_stream(groups).items():
        for readout in dict.fromkeys(readout for each in members for readout in each.runs[0].result.measures):
            having = [each for each in members if all(readout in run.result.measures for run in each.runs)]
            yield stream, readout, having


def every_run(groups: Sequence[RunGroup]) -> Iterator[tuple[RunGroup, FinishedRun]]:
    return ((each, run) for each in groups for run in each.runs)


def readout_title(readout: str) -> str:
    return READOUT_TITLES.get(readout, readout)


def task_titles(number: int) -> list[str]:
    return [f"task {task + 1}" for task in range(number)]


def evaluation_titles(run: FinishedRun) -> list[str]:
    """When the evaluations of a run took place."""
    if len(run.evaluations) == 1:
        return ["at the end"]
    return [f"after {number + 1}" for number in range(len(run.evaluations))]
