"""What analyses find, as a table, a file and a picture; the runs behind their progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import TaskID

from sncl.cli.bars import counting_bar
from sncl.cli.console import err, print_json, print_table
from sncl.errors import SnclError
from sncl.training.stopping import stop_code

if TYPE_CHECKING:
    from sncl.analysis.groups import AnalysisGroup


class Presentation(NamedTuple):
    """What is made of an analysis: its name, its table, its picture, and where they go."""

    name: str
    table: Callable[[Sequence[AnalysisGroup]], tuple[list[str], list[list[str]]]]
    draw: Callable[[Sequence[AnalysisGroup], Path], None]
    file: Path | None
    picture: Path | None
    as_json: bool

    def check(self) -> None:
        """Refuse files that could not be written, before the analysis and not after it."""
        from sncl.cli.pictures import check_picture

        if self.file is not None and (self.file.suffix != ".json" or not self.file.parent.is_dir()):
            raise SnclError(f"--out is a .json file in a folder that exists, not {self.file}")
        if self.picture is not None:
            check_picture(self.picture)

    def present(self, groups: Sequence[AnalysisGroup], options: dict[str, Any]) -> None:
        """Show, write and draw what was found."""
        from sncl.training.checkpoint import write_json

        found = {
            "analysis": self.name,
            "options": options,
            "groups": [group.as_json() for group in groups],
            "runs": [run for group in groups for run in group.runs],
        }
        if self.file is not None:
            write_json(self.file, found)
        if self.as_json:
            print_json(found)
        else:
            print_table(*self.table(groups))
        if self.picture is not None:
            self.draw(groups, self.picture)
            err.print(f"picture: {self.picture}")


def analyze(
    analysis: Callable[..., dict[str, Any]],
    options: dict[str, Any],
    runs: list[Path],
    show: Presentation,
    data: Path | None,
    device: str,
) -> list[AnalysisGroup]:
    """Analyse the runs, and show, write and draw what was found."""
    show.check()
    try:
        groups = of_every_run(runs, partial(analysis, **options), data, device)
    except KeyboardInterrupt:
        err.print("stopped; nothing was written")
        sys.exit(stop_code())
    show.present(groups, options)
    return groups


def of_every_run(
    folders: Sequence[Path], analysis: Callable[..., dict[str, Any]], data: Path | None, device: str
) -> list[AnalysisGroup]:
    """What an analysis says about each run, behind one progress bar each, by method and seed."""
    from sncl.analysis.groups import analysed, by_seed
    from sncl.runs.loading import load_run
    from sncl.training.engine import exact_kernels, on_threads

    found = []
    with counting_bar(err) as progress:
        for folder in folders:
            bar = progress.add_task(str(folder), total=None, note="")

            def watch(done: int, total: int, bar: TaskID = bar) -> None:
                progress.update(bar, completed=done, total=total)

            run = load_run(folder, data, device)
            with exact_kernels(), on_threads(run.experiment.threads):
                found.append(analysed(run, analysis(run, progress=watch)))
            by_seed(found)  # refuses the same seed twice before more time is spent
    return by_seed(found)
