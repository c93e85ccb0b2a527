"""``sncl analyze``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sncl.cli.completion import complete_run
from sncl.cli.console import err, say
from sncl.cli.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    OutOption,
    PictureOption,
    RowsOption,
    RunsArgument,
    SeedOption,
    numbers,
)
from sncl.cli.presentation import Presentation, analyze
from sncl.errors import SnclError


def analyze_perturbation(
    runs: RunsArgument,
    absolute: Annotated[str | None, typer.Option(help="Sizes of the noise, with commas between them")] = None,
    relative: Annotated[str | None, typer.Option(help="Sizes relative to the norm of each filter")] = None,
    draws: Annotated[int, typer.Option(help="Draws of noise for each size", min=1)] = 5,
    rows: RowsOption = 10_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Loss and accuracy under Gaussian noise on the weights: flat minima bear more of it."""
    from sncl.analysis.perturbation import SIZES, perturbation
    from sncl.analysis.pictures import draw_perturbation
    from sncl.analysis.tables import perturbation_table

    sizes = SIZES | {
        kind: numbers(text, f"--{kind}") for kind, text in (("absolute", absolute), ("relative", relative)) if text
    }
    options = {"sizes": sizes, "draws": draws, "rows": rows, "seed": seed}
    show = Presentation("perturbation", perturbation_table, draw_perturbation, file, picture, as_json)
    analyze(perturbation, options, runs, show, data, device)


def analyze_fisher(
    runs: RunsArgument,
    eigenvalues: Annotated[int, typer.Option(help="How many of the largest eigenvalues (0: none)", min=0)] = 10,
    rows: RowsOption = 5_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Trace and largest eigenvalues of the empirical Fisher information on training rows."""
    from sncl.analysis.fisher import fisher
    from sncl.analysis.pictures import draw_fisher
    from sncl.analysis.tables import fisher_table

    options = {"eigenvalues": eigenvalues, "rows": rows, "seed": seed}
    show = Presentation("fisher", fisher_table, draw_fisher, file, picture, as_json)
    analyze(fisher, options, runs, show, data, device)


def analyze_tsne(
    runs: RunsArgument,
    task: Annotated[
        int | None, typer.Option(help="Also this task, counted from 1, now beside right after it (--keep-tasks)")
    ] = None,
    rows: RowsOption = 2_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last features of test rows in two dimensions: how far classes lie apart, how far a task has drifted."""
    from sncl.analysis.embedding import tsne, without_task
    from sncl.analysis.pictures import draw_tsne
    from sncl.analysis.tables import tsne_table

    show = Presentation("tsne", tsne_table, draw_tsne, file, picture, as_json)
    groups = analyze(tsne, {"task": task, "rows": rows, "seed": seed}, runs, show, data, device)
    for folder in without_task([run for group in groups for run in group.runs]):
        err.print(
            f"note: {folder} did not keep its network after task {task}; for that picture run its sncl train command "
            "again with --keep-tasks and another --out"
        )


def analyze_calibration(
    runs: RunsArgument,
    samples: Annotated[int, typer.Option(help="Samples of the gates' posterior to average", min=1)] = 20,
    bins: Annotated[int, typer.Option(help="Bins of confidence", min=1)] = 15,
    rows: RowsOption = 10_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether networks are right as often as they are sure, as they predict and with their gates sampled."""
    from sncl.analysis.calibration import calibration
    from sncl.analysis.pictures import draw_calibration
    from sncl.analysis.tables import calibration_table

    options = {"samples": samples, "bins": bins, "rows": rows, "seed": seed}
    show = Presentation("calibration", calibration_table, draw_calibration, file, picture, as_json)
    analyze(calibration, options, runs, show, data, device)


def analyze_sparsity(
    runs: RunsArgument,
    closed: Annotated[
        str | None, typer.Option(help="Percent of all neurons to close, with commas between them (default: 10 to 90)")
    ] = None,
    rows: RowsOption = 10_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Size and accuracy of runs of SNCL with more and more neurons closed, the least relevant first.

    Also left in each run folder, as sparsity.json, for sncl report.
    """
    from sncl.analysis.pictures import draw_sparsity
    from sncl.analysis.sparsity import CLOSED, sparsity
    from sncl.analysis.tables import sparsity_table
    from sncl.runs.sweep import keep_sweep

    percents = CLOSED if closed is None else numbers(closed, "--closed")
    show = Presentation("sparsity", sparsity_table, draw_sparsity, file, picture, as_json)
    groups = analyze(sparsity, {"closed": percents, "rows": rows, "seed": seed}, runs, show, data, device)
    for run in (run for group in groups for run in group.runs):
        try:
            keep_sweep(Path(run["run"]), run)
        except SnclError as error:
            err.print(f"note: {error}, so sncl report will not show it")


def analyze_capacity(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold run folders", autocompletion=complete_run)
    ],
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accuracy right after learning each task, with gates beside without, over pairs of runs of one seed.

    A pair differs in nothing but gates. Does a network that keeps neurons in reserve learn later tasks better?
    """
    from sncl.analysis.capacity import capacity
    from sncl.analysis.pictures import draw_capacity
    from sncl.analysis.tables import capacity_table

    show = Presentation("capacity", capacity_table, draw_capacity, file, picture, as_json)
    show.check()
    show.present(capacity(runs, lambda text: say(f"note: {text}")), {})
