"""Results of runs as Python has them: a sequence, a frame, a plot, a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError, lacking
from sncl.interactive import tables
from sncl.live.terminal import printable
from sncl.methods.table import method_title
from sncl.report import write_report
from sncl.report.collect import FinishedRun
from sncl.report.groups import RunGroup, group_runs
from sncl.runs.folders import RunFiles, finished_runs
from sncl.runs.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame  # type: ignore[import-untyped]


class Results(Sequence[Result]):
    """What runs measured: a sequence of :class:`~sncl.runs.result.Result`, each with its folder.

    Shown, it is the table of ``sncl train``: mean ± standard deviation over the runs that differ in nothing but the
    seed. A slice is Results again.
    """

    def __init__(self, runs: Iterable[RunFiles]) -> None:
        self.runs = tuple(runs)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        return Results(self.runs[index]) if isinstance(index, slice) else self.runs[index].result

    @property
    def folders(self) -> list[Path]:
        """Where each run lies."""
        return [run.folder for run in self.runs]

    def groups(self) -> list[RunGroup]:
        """The runs that differ in nothing but the seed, together, under a title that says what sets them apart."""
        return group_runs([FinishedRun(*run) for run in self.runs])

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row for each run: accuracy by read-out in percent, forgetting, backward transfer, the
        part of the neurons that is open, seconds, the settings in which the runs differ, and the folder."""
        return needing_pandas().DataFrame(tables.run_rows(self.runs))

    def summary(self) -> DataFrame:
        """A pandas frame with a row for each group of seeds: the mean of each measure, and its standard deviation."""
        return needing_pandas().DataFrame(tables.group_rows(self.groups()))

    def matrix(self, method: str, readout: str | None = None) -> NDArray[np.float64]:
        """The accuracy in percent on each task (column) after each task (row), the mean over seeds.

        NaN where it was not measured. ``method`` is a name or a title; ``readout`` is "class_il", "task_il",
        "domain_il" or "gcl", the first that there is unless it is given.
        """
        found = [each for each in self.groups() if method in (each.method, each.title, method_title(each.method))]
        titles = ", ".join(each.title for each in found or self.groups())
        if len(found) != 1:
            one = "one of the methods here" if not found else "the title of one group of seeds"
            raise SnclError(f"`method` is {one} ({titles}), not {method!r}")
        matrices = []
        for run in found[0].runs:
            chosen = readout or next(iter(run.result.measures))
            if chosen not in run.result.measures:
                raise SnclError(f"`readout` is one of {', '.join(run.result.measures)}, not {readout!r}")
            matrices.append(np.array(run.result.measures[chosen].accuracy_matrix, dtype=np.float64))
        mean: NDArray[np.float64] = np.mean(matrices, axis=0)
        return mean

    def plot(self, readout: str | None = None) -> Figure:
        """A matplotlib figure: the average accuracy over the tasks seen, with a band of one standard deviation over
        seeds, one panel for each stream. Save it with ``savefig``."""
        if find_spec("matplotlib") is None:
            raise lacking("a plot", "matplotlib")
        from sncl.interactive.plots import accuracy_plot

        return accuracy_plot(tables.seed_groups(self.groups()), readout)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the page of ``sncl report`` about these runs, and return where it is."""
        write_report(self.folders, Path(path), lambda text: print(printable(f"note: {text}"), file=sys.stderr))
        return Path(path)

    def __repr__(self) -> str:
        return tables.as_text(self.groups())

    def _repr_html_(self) -> str:
        return tables.as_html(self.groups())


def results(*folders: str | os.PathLike[str]) -> Results:
    """The finished runs in and below these folders (``runs`` unless told otherwise), whoever made them.

    >>> results("runs").to_frame()  # doctest: +SKIP
    """
    said: list[str] = []
    return Results(finished_runs([Path(each) for each in folders or ("runs",)], said.append))


def needing_pandas() -> Any:
    """The module pandas, or an error that says how to get it."""
    if find_spec("pandas") is None:
        raise lacking("a frame", "pandas")
    import pandas

    return pandas
