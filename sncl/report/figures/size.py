"""Accuracy against size: one trained network with more and more neurons closed, by what is left of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sncl.report.figures.figure import Figure, FigureView, Series, groups_by_readout, looks, readout_title, seed_series
from sncl.report.groups import RunGroup
from sncl.runs.sweep import StoredSweep

TITLE = "Accuracy against size"
COMMAND = "sncl analyze sparsity RUN"
SIZES = {"open": "open neurons, %", "parameters_left": "parameters left, %"}

Sweeps = Mapping[str, StoredSweep]  # by the folder of the run


def size_figure(groups: Sequence[RunGroup], sweeps: Sweeps) -> Figure:
    look, views = looks(groups), []
    for stream, readout, members in groups_by_readout(groups):
        for size, title in SIZES.items():
            found = [(each, size_curve(analysed(each, sweeps), readout, size)) for each in members]
            lines = [curve | {"name": each.title, **look[each.title]} for each, curve in found if curve["x"]]
            if lines:
                views.append(FigureView((stream, readout_title(readout), title), lines, title, "accuracy, %"))
    rows = " or ".join(f"{count:,}" for count in sorted({each.test_rows for each in sweeps.values()}))
    note = (
        "One trained network as it is (the largest size) and with further neurons closed in evaluation, the least "
        f"relevant first: mean over the analysed seeds, on {rows} test samples, as {COMMAND} found it. Parameters are "
        "those left when closed neurons are removed, in percent of the dense network's."
    )
    return Figure("size", TITLE, note, ("stream", "read-out", "against"), views)


def analysed(group: RunGroup, sweeps: Sweeps) -> list[StoredSweep]:
    """What is known of the seeds of a group."""
    return [sweeps[str(run.folder)] for run in group.runs if str(run.folder) in sweeps]


def size_curve(sweeps: Sequence[StoredSweep], readout: str, size: str) -> Series:
    """Accuracy by size, from small to large, with as many neurons closed as all seeds were analysed with."""
    shared = [key for key in (sweeps[0].points if sweeps else {}) if all(key in each.points for each in sweeps)]
    places = []
    for key in shared:
        points = [each.points[key] for each in sweeps]
        where = sum(float(getattr(point, size)) for point in points) / len(points)
        places.append((round(where, 2), [point.accuracy.get(readout) for point in points]))
    places.sort(key=lambda place: place[0])
    return seed_series("", [where for where, _ in places], [values for _, values in places], type="scatter")


def unknown_sizes(groups: Sequence[RunGroup], sweeps: Sweeps) -> list[str]:
    """The runs with gates that were not analysed, in words."""
    found = []
    for each in groups:
        runs = [run for run in each.runs if run.result.active_fraction is not None and str(run.folder) not in sweeps]
        if runs:
            seeds = ", ".join(str(run.result.seed) for run in runs)
            found.append(f"{each.stream}, {each.title} (seed{'s' * (len(runs) > 1)} {seeds})")
    return found
