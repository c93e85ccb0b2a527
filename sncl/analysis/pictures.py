"""One picture for each analysis, as wide as a column of a paper; lines are means over seeds, bands their deviation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sncl.analysis.groups import AnalysisGroup
from sncl.runs.summary import READOUT_TITLES
from sncl.runs.sweep import ACCURACY, OWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL_PRINT: Any = {
    "font.size": 7,
    "axes.titlesize": 7,
    "legend.fontsize": 6,
    "legend.frameon": False,
    "lines.markersize": 3,
}
COLUMN = 3.4  # inches
DOT = 2.0  # of a scattered point
THEN, NOW = "tab:red", "tab:blue"  # as in the paper: the reference red, after the stream blue


@contextmanager
def panels(path: Path, rows: int, columns: int, width: float, height: float) -> Iterator[Any]:
    """A grid of panels in small print, drawn without a display and saved in the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(SMALL_PRINT):
        figure, axes = pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
        try:
            yield axes
            figure.savefig(path, dpi=300)
        finally:
            pyplot.close(figure)


def logarithmic(panel: Axes) -> None:
    """A logarithmic axis with plain numbers on it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())


def curve(
    panel: Axes, where: Sequence[float], points: Sequence[dict[str, float]], label: str, number: int, style: str = "-"
) -> None:
    """Means with their deviations as a band, in the colour of that number."""
    means, colour = [point["mean"] for point in points], f"C{number % 10}"
    panel.plot(where, means, style, color=colour, marker="o", markersize=2, linewidth=1, label=label)
    low = [point["mean"] - point["std"] for point in points]
    high = [point["mean"] + point["std"] for point in points]
    panel.fill_between(where, low, high, color=colour, alpha=0.2, linewidth=0)


def draw_perturbation(groups: Sequence[AnalysisGroup], path: Path) -> None:
    readout = next(key for key in groups[0].summary["absolute"][0] if key.startswith("accuracy/"))
    rows = {"train_loss": "training loss", readout: f"{READOUT_TITLES[readout.partition('/')[2]]}, %"}
    columns = {"absolute": "noise", "relative": "noise / norm of filter"}
    with panels(path, len(rows), len(columns), COLUMN, 3.0) as axes:
        for line, (key, name) in zip(axes, rows.items(), strict=True):
            for panel, kind in zip(line, columns, strict=True):
                for number, group in enumerate(groups):
                    points = group.summary[kind]
                    where = [point["size"]["mean"] for point in points]
                    curve(panel, where, [point[key] for point in points], group.title, number)
                    if kind == "relative" and "relative_gates" in group.summary:
                        values = [point[key] for point in group.summary["relative_gates"]]
                        curve(panel, where, values, f"{group.title}, gates too", number, ":")
                if key == "train_loss":
                    logarithmic(panel)
                panel.grid(alpha=0.25, linewidth=0.5)
            line[0].set_ylabel(name)
        for panel, name in zip(axes[-1], columns.values(), strict=True):
            panel.set_xlabel(name)
        axes[0][1].legend()


def draw_fisher(groups: Sequence[AnalysisGroup], path: Path) -> None:
    """The trace and the largest eigenvalues."""
    with panels(path, 1, 3, COLUMN, 1.5) as axes:
        bars, relative, values = axes[0]
        colours = [f"C{number % 10}" for number in range(len(groups))]
        for panel, key, name in ((bars, "trace", "trace of F"), (relative, "relative_trace", "trace, relative")):
            means, deviations = ([group.summary[key][part] for group in groups] for part in ("mean", "std"))
            panel.bar(range(len(groups)), means, yerr=deviations, capsize=2, color=colours)
            panel.set_xticks(range(len(groups)), [group.title for group in groups], fontsize=6)
            panel.set_ylabel(name)
        bottom = [group.summary["relative_trace"]["mean"] for group in groups]
        more = [group.summary["relative_trace_of_gates"]["mean"] for group in groups]
        if any(more):
            relative.bar(range(len(groups)), more, bottom=bottom, color=colours, alpha=0.4, label="of gates")
            relative.legend()
        for number, group in enumerate(groups):
            points = group.summary["eigenvalues"]
            curve(values, range(1, len(points) + 1), points, group.title, number)
        values.set_ylim(bottom=0)
        values.set_xlabel("number")
        values.set_ylabel("eigenvalue")


def draw_tsne(groups: Sequence[AnalysisGroup], path: Path) -> None:
    """One column for each group, that of its first seed: all classes and, where there is one, the task then and now."""
    shown = [group.runs[0] for group in groups]
    with_task = any(run.get("one_task") for run in shown)
    with panels(path, 1 + with_task, len(groups), COLUMN / 2 * max(2, len(groups)), 1.7 * (1 + with_task)) as axes:
        for panel in axes.flat:
            panel.set_xticks([])
            panel.set_yticks([])
        for column, (group, run) in enumerate(zip(groups, shown, strict=True)):
            top = axes[0][column]
            x, y = zip(*run["after_stream"]["points"], strict=True)
            classes = sorted(set(run["after_stream"]["labels"]))
            for number, label in enumerate(classes):
                own = [place for place, each in enumerate(run["after_stream"]["labels"]) if each == label]
                across, up = ([values[place] for place in own] for values in (x, y))
                top.scatter(across, up, s=DOT, linewidths=0, c=f"C{number % 10}", label=label)
            top.set_title(f"{group.title}, seed {run['seed']}")
            one = run.get("one_task")
            if one:
                below = axes[1][column]
                for key, colour, name in (("then", THEN, "right after it"), ("now", NOW, "after the stream")):
                    x, y = zip(*one[key], strict=True)
                    below.scatter(x, y, s=DOT, linewidths=0, c=colour, label=name)
                below.set_title(f"task {one['task']}: drift {run['measures']['drift']:.2f}")
            axes[-1][column].set_xlabel("t-SNE 1")
        for line in axes:
            line[0].set_ylabel("t-SNE 2")
            if 0 < len(line[-1].get_legend_handles_labels()[1]) <= 10:
                line[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=3, handletextpad=0.1)


def draw_calibration(groups: Sequence[AnalysisGroup], path: Path) -> None:
    """Reliability: how often right against how sure; below, how many samples there are in each bin."""
    with panels(path, 2, 1, COLUMN, 3.2) as (top, bottom):
        panel, counts = top[0], bottom[0]
        panel.plot([0, 1], [0, 1], color="grey", linewidth=0.7, linestyle=":")
        for number, group in enumerate(groups):
            for way, found in group.summary.items():
                style = ":" if way == "sampled" else "-"
                title = f"{group.title}, {'gates sampled' if way == 'sampled' else 'as it predicts'}"
                error = found["expected_calibration_error"]["mean"]
                bins = [each for each in found["reliability"] if each["confidence"] is not None]
                where = [each["confidence"]["mean"] for each in bins]
                curve(panel, where, [each["accuracy"] for each in bins], f"{title} (ECE {error:.3f})", number, style)
                middles = [(each["low"]["mean"] + each["high"]["mean"]) / 2 for each in found["reliability"]]
                numbers = [each["count"]["mean"] for each in found["reliability"]]
                counts.plot(middles, numbers, style, color=f"C{number % 10}", drawstyle="steps-mid", linewidth=1)
        panel.set_ylabel("part that is right")
        panel.legend()
        counts.set_yscale("symlog", linthresh=1)
        counts.set_ylabel("samples in the bin")
        counts.set_xlabel("confidence")
        for each in (panel, counts):
            each.set_xlim(0, 1)
            each.grid(alpha=0.25, linewidth=0.5)


def draw_sparsity(groups: Sequence[AnalysisGroup], path: Path) -> None:
    """What closing neurons costs: accuracy by open neurons and by the parameters left; a dotted line as it is."""
    readout = next(key for key in groups[0].summary[OWN] if key.startswith(ACCURACY))
    sizes = {"open": "open neurons, %", "parameters_left": "parameters left, %"}
    with panels(path, 1, len(sizes), COLUMN, 1.7) as axes:
        for panel, (size, title) in zip(axes[0], sizes.items(), strict=True):
            for number, group in enumerate(groups):
                points = sorted(group.summary.values(), key=lambda point: point[size]["mean"])
                where, scores = [point[size]["mean"] for point in points], [point[readout] for point in points]
                curve(panel, where, scores, group.title, number)
                own = group.summary[OWN][readout]["mean"]
                panel.axhline(own, color=f"C{number % 10}", linewidth=0.7, linestyle=":")
            panel.set_xlabel(title)
            panel.grid(alpha=0.25, linewidth=0.5)
        axes[0][0].set_ylabel(f"{READOUT_TITLES[readout.partition('/')[2]]}, %")
        axes[0][0].legend()


def draw_capacity(groups: Sequence[AnalysisGroup], path: Path) -> None:
    """Accuracy right after learning each task, with gates and without (dashed), and the paired difference."""
    readouts = list(groups[0].summary["readouts"])
    with panels(path, len(readouts), 2, COLUMN, 1.7 * len(readouts)) as axes:
        for (learned, gained), readout in zip(axes, readouts, strict=True):
            for number, group in enumerate(groups):
                found = group.summary["readouts"][readout]
                for key, panel, style in (
                    ("with_gates", learned, "-"),
                    ("without_gates", learned, "--"),
                    ("difference", gained, "-"),
                ):
                    known = [(task, value) for task, value in enumerate(found[key], start=1) if value is not None]
                    label = f"{group.title}, {key.replace('_', ' ')}"
                    curve(panel, [task for task, _ in known], [value for _, value in known], label, number, style)
            gained.axhline(0, color="grey", linewidth=0.7, linestyle=":")
            learned.set_ylabel(f"{READOUT_TITLES[readout]} right after, %")
            gained.set_ylabel("with gates - without")
            for panel in (learned, gained):
                panel.set_xlabel("task")
                panel.xaxis.get_major_locator().set_params(integer=True)
                panel.grid(alpha=0.25, linewidth=0.5)
        axes[0][0].legend()
