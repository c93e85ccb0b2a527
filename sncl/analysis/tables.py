"""Headings and cells of each analysis: one line for each group, mean ± standard deviation over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sncl.analysis.groups import AnalysisGroup
from sncl.runs.summary import READOUT_TITLES
from sncl.runs.sweep import ACCURACY, OWN

Cells = tuple[list[str], list[list[str]]]


def show_measure(value: dict[str, float] | None, seeds: int, digits: int = 3) -> str:
    """A measure over seeds, with so many significant digits."""
    if value is None:
        return "–"
    mean = f"{value['mean']:.{digits}g}"
    return f"{mean} ± {value['std']:.2g}" if seeds > 1 else mean


def perturbation_table(groups: Sequence[AnalysisGroup]) -> Cells:
    readout = next(key for key in groups[0].summary["absolute"][0] if key.startswith("accuracy/"))
    headings = ["method", "seeds", "noise", "size", "training loss", "test loss"]
    headings.append(f"{READOUT_TITLES[readout.partition('/')[2]]}, %")
    cells = []
    for each in groups:
        for kind, points in each.summary.items():
            for point in points:
                values = [show_measure(point.get(key), len(each.runs)) for key in ("train_loss", "test_loss", readout)]
                where = [kind.replace("_", " + "), f"{point['size']['mean']:g}"]
                cells.append([each.title, str(len(each.runs)), *where, *values])
    return headings, cells


def fisher_table(groups: Sequence[AnalysisGroup]) -> Cells:
    headings = ["method", "seeds", "rows", "trace", "relative trace", "of gates", "largest eigenvalues"]
    cells = []
    for each in groups:
        seeds = len(each.runs)
        largest = [show_measure(value, seeds) for value in each.summary["eigenvalues"][:3]]
        traces = [
            show_measure(each.summary[key], seeds) for key in ("trace", "relative_trace", "relative_trace_of_gates")
        ]
        cells.append([each.title, str(seeds), sample_count(each, "training_rows"), *traces, ", ".join(largest) or "–"])
    return headings, cells


def tsne_table(groups: Sequence[AnalysisGroup]) -> Cells:
    headings = ["method", "seeds", "rows", "separation of classes", "drift since the task"]
    cells = []
    for each in groups:
        values = [show_measure(each.summary.get(key), len(each.runs)) for key in ("separation", "drift")]
        cells.append([each.title, str(len(each.runs)), sample_count(each, "test_rows"), *values])
    return headings, cells


def calibration_table(groups: Sequence[AnalysisGroup]) -> Cells:
    measures = {
        "accuracy": "accuracy, %",
        "negative_log_likelihood": "NLL",
        "expected_calibration_error": "ECE",
        "entropy_right": "entropy, right",
        "entropy_wrong": "entropy, wrong",
    }
    headings = ["method", "seeds", "rows", "gates", *measures.values()]
    cells = []
    for each in groups:
        for way, found in each.summary.items():
            values = [show_measure(found[key], len(each.runs)) for key in measures]
            cells.append([each.title, str(len(each.runs)), sample_count(each, "test_rows"), way, *values])
    return headings, cells


def sparsity_table(groups: Sequence[AnalysisGroup]) -> Cells:
    readouts = [key for key in groups[0].summary[OWN] if key.startswith(ACCURACY)]
    titles = [f"{READOUT_TITLES[readout.partition('/')[2]]}, %" for readout in readouts]
    headings = ["method", "seeds", "closed, %", "open neurons, %", "parameters left, %", *titles]
    cells = []
    for each in groups:
        seeds = len(each.runs)
        for closed, point in each.summary.items():
            values = [show_measure(point.get(key), seeds) for key in ("open", "parameters_left", *readouts)]
            cells.append([each.title, str(seeds), closed, *values])
    return headings, cells


def capacity_table(groups: Sequence[AnalysisGroup]) -> Cells:
    headings = ["method", "seeds", "read-out", "right after", "open, %", "with gates, %", "without, %", "difference"]
    cells = []
    for each in groups:
        seeds, opened = len(each.runs), dict(enumerate(each.summary["open"]))
        for readout, found in each.summary["readouts"].items():
            start = [each.title, str(seeds), READOUT_TITLES[readout]]
            columns = zip(found["with_gates"], found["without_gates"], found["difference"], strict=True)
            for task, (ours, theirs, gain) in enumerate(columns):
                numbers = [show_points(value, seeds) for value in (opened.get(task), ours, theirs)]
                cells.append([*start, f"task {task + 1}", *numbers, show_points(gain, seeds, "+")])
            parts = {"first_half": "first half", "second_half": "second half", "growth": "second - first half"}
            cells += [[*start, name, "", "", "", show_points(found[key], seeds, "+")] for key, name in parts.items()]
    return headings, cells


def show_points(value: dict[str, float] | None, seeds: int, sign: str = "") -> str:
    """Percent or points over seeds, with two digits behind the point."""
    if value is None:
        return "–"
    return f"{value['mean']:{sign}.2f}" + (f" ± {value['std']:.2f}" if seeds > 1 else "")


def sample_count(group: AnalysisGroup, key: str) -> str:
    counts: list[Any] = sorted({run[key] for run in group.runs})
    return " to ".join(str(count) for count in (counts[0], counts[-1])[: len(counts)])
