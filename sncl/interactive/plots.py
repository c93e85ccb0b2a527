"""Results as a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sncl.errors import SnclError
from sncl.report.figures.accuracy import accuracy_curve, matrices_of
from sncl.report.groups import RunGroup
from sncl.runs.summary import READOUT_TITLES, mean_std, readouts

PANEL = (4.6, 3.4)  # inches


def accuracy_plot(groups: Sequence[RunGroup], readout: str | None = None) -> Figure:
    """The average accuracy over the tasks seen, mean and deviation over seeds, one panel for each stream."""
    from matplotlib import pyplot

    if not groups:
        raise SnclError("there are no runs to plot")
    streams = list(dict.fromkeys(each.stream for each in groups))
    width, height = PANEL
    figure, axes = pyplot.subplots(1, len(streams), figsize=(width * len(streams), height), squeeze=False)
    for panel, stream in zip(axes[0], streams, strict=True):
        members = [each for each in groups if each.stream == stream]
        present = readouts(run.result for each in members for run in each.runs)
        chosen = readout or present[0]
        if chosen not in present:
            raise SnclError(f"`readout` is one of {', '.join(present)} on {stream}, not {readout!r}")
        length = max(len(matrix) for each in members for matrix in matrices_of(each, chosen))
        for each in members:
            curves = [accuracy_curve(matrix, length, None) for matrix in matrices_of(each, chosen)]
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
