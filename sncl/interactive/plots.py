"""Results as a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sncl.errors import SnclError
from sncl.report.figures.accuracy import accuracy_curve
from sncl.runs.summary import READOUT_TITLES, SeedGroup, mean_std, readouts

PANEL = (4.6, 3.4)  # inches


def accuracy_plot(groups: Sequence[SeedGroup], readout: str | None = None) -> Figure:
    """The average accuracy over the tasks seen, mean and deviation over seeds, one panel for each stream."""
    from matplotlib import pyplot

    if not groups:
        raise SnclError("there are no runs to plot")
    streams: dict[str, list[SeedGroup]] = {}
    for each in groups:
        streams.setdefault(each.stream, []).append(each)
    shown = {stream: choose_readout(stream, members, readout) for stream, members in streams.items()}
    width, height = PANEL
    figure, axes = pyplot.subplots(1, len(streams), figsize=(width * len(streams), height), squeeze=False)
    for panel, (stream, members) in zip(axes[0], streams.items(), strict=True):
        chosen = shown[stream]
        matrices = [[result.measures[chosen].accuracy_matrix for result in each.results] for each in members]
        length = max(len(matrix) for several in matrices for matrix in several)
        for each, several in zip(members, matrices, strict=True):
            curves = [accuracy_curve(matrix, length, None) for matrix in several]
            draw_group(panel, each.title, [mean_std_of(column) for column in zip(*curves, strict=True)])
        panel.set_title(f"{stream} ({READOUT_TITLES[chosen]})", fontsize=10)
        panel.set_xlabel("tasks seen" if length > 1 else "")
        panel.grid(alpha=0.25)
        if length > 1:
            panel.legend(frameon=False, fontsize=9)
    axes[0][0].set_ylabel("accuracy on tasks seen, %")
    figure.tight_layout()
    pyplot.close(figure)  # a notebook would show it a second time
    return figure


def choose_readout(stream: str, groups: Sequence[SeedGroup], readout: str | None) -> str:
    """The read-out that was asked for, or the first there is on a stream."""
    present = readouts(result for each in groups for result in each.results)
    if readout is not None and readout not in present:
        raise SnclError(f"`readout` is one of {', '.join(present)} on {stream}, not {readout!r}")
    return readout or present[0]


def mean_std_of(values: Sequence[float | None]) -> tuple[float, float]:
    """Of the numbers among the values; NaN where there are none."""
    known = [value for value in values if value is not None]
    return mean_std(known) if known else (float("nan"), 0.0)


def draw_group(panel: Any, title: str, points: Sequence[tuple[float, float]]) -> None:
    """A curve with its band; a bar where a stream without boundaries is tested once."""
    means = [mean for mean, _ in points]
    if len(points) == 1:
        panel.bar(title, means[0], yerr=points[0][1], capsize=3)
        return
    tasks = range(1, len(points) + 1)
    (line,) = panel.plot(tasks, means, marker="o", markersize=3, label=title)
    low, high = [mean - deviation for mean, deviation in points], [mean + deviation for mean, deviation in points]
    panel.fill_between(tasks, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
