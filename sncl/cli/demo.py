"""``sncl demo``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sncl.cli.console import err, out, print_json, print_note, print_table
from sncl.cli.options import JsonOption, PictureOption, ReportOption
from sncl.cli.reports import check_outputs, report_on
from sncl.cli.training import results_of

if TYPE_CHECKING:
    from sncl.runs.job import Job

DEMO_METHODS = ("sgd", "er", "derpp", "sncl")
DEMO_STREAMS = ("seq-digits", "perm-digits", "rot-digits", "digits-360")
DEMO_MEMORY = 100


def demo_command(
    seeds: Annotated[int, typer.Option(help="How many seeds", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option("--out", help="Keep the runs here (default: a temporary one)")] = None,
    picture: PictureOption = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch SGD, ER, DER++ and SNCL learn the embedded streams: no download, under two minutes."""
    from sncl.cli.pictures import check_picture, draw
    from sncl.runs.finished import finished_result
    from sncl.runs.summary import footnote, results_table

    if picture is not None:
        check_picture(picture)
    check_outputs(report)
    with working_folder(folder) as place:
        jobs = demo_jobs(seeds, place)
        results = results_of(jobs, [finished_result(job.experiment, job.folder) for job in jobs])
        if as_json:
            print_json({"runs": [result.to_json() for result in results]})
        else:
            for stream in dict.fromkeys(result.stream for result in results):
                print_table(*results_table([result for result in results if result.stream == stream]))
                out.print()
            print_note(footnote(results))
        if picture is not None:
            draw(results, picture)
            err.print(f"picture: {picture}")
        report_on([job.folder for job in jobs], report)


def demo_jobs(seeds: int, folder: Path) -> list[Job]:
    """The demo: every method with the same seeds on every embedded stream."""
    from sncl.runs.job import Job
    from sncl.runs.plan import plan

    return [
        Job(
            plan(stream, method, memory=DEMO_MEMORY, seed=seed, device="cpu", unchecked=True),
            folder / f"{stream}-{method}-{seed}",
        )
        for stream in DEMO_STREAMS
        for method in DEMO_METHODS
        for seed in range(seeds)
    ]


@contextmanager
def working_folder(folder: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one that is removed afterwards."""
    if folder is not None:
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="sncl-") as place:
            yield Path(place)
