"""The picture of the demo, and whether one could be drawn at all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sncl.errors import SnclError, lacking
from sncl.evaluation.metrics import mean as over_tasks
from sncl.runs.result import Result
from sncl.runs.summary import READOUT_TITLES, by_seeds, mean_std, readouts


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before the runs and not after them."""
    if path.suffix not in (".png", ".svg"):
        raise SnclError(f"a picture is a .png or .svg file, not {path}")
    if not path.parent.is_dir():
        raise SnclError(f"the folder of {path} does not exist")
    if find_spec("matplotlib") is None:
        raise lacking("drawing", "matplotlib")


def draw(results: Sequence[Result], path: Path) -> None:
    """The average accuracy over the tasks seen so far, mean and spread over seeds, one panel for each stream."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    streams = list(dict.fromkeys(result.stream for result in results))
    figure, axes = pyplot.subplots(1, len(streams), figsize=(3.4 * len(streams), 3.2), squeeze=False)
    for panel, stream in zip(axes[0], streams, strict=True):
        members = [result for result in results if result.stream == stream]
        for row in by_seeds(members):
            curves = [
                [over_tasks(known[: t + 1]) for t, known in enumerate(result.accuracy_matrix)] for result in row.results
            ]
            points = [mean_std(values) for values in zip(*curves, strict=True)]
            means, deviations = [mean for mean, _ in points], [deviation for _, deviation in points]
            if len(points) == 1:  # a stream without boundaries is tested once
                panel.bar(row.title, means[0], yerr=deviations[0], capsize=3)
            else:
                tasks = range(1, len(points) + 1)
                (line,) = panel.plot(tasks, means, marker="o", markersize=3, label=row.title)
                low = [mean - deviation for mean, deviation in points]
                high = [mean + deviation for mean, deviation in points]
                panel.fill_between(tasks, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        panel.set_title(f"{stream} ({READOUT_TITLES[readouts(members)[0]]})", fontsize=10)
        panel.set_xlabel("tasks seen" if len(members[0].accuracy_matrix) > 1 else "")
        panel.grid(alpha=0.25)
    axes[0][0].set_ylabel("accuracy on tasks seen, %")
    axes[0][0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
