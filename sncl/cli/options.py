"""Options that several commands have, and how those with more than one value are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sncl.cli.completion import complete_method, complete_run, complete_setting, complete_stream
from sncl.errors import SnclError

if TYPE_CHECKING:
    from sncl.executors.fleet import Fleet

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder with the data sets (default: $SNCL_DATA or the user's cache)")
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(help="Run folders of sncl train; seeds of one method are averaged", autocompletion=complete_run),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Also write all numbers to this .json file")]
PictureOption = Annotated[Path | None, typer.Option(help="Also draw the result (.png or .svg; needs matplotlib)")]
MethodOption = Annotated[
    str,
    typer.Option(
        help="A method of `sncl list`, or your own, whose code is run: package.module:Name",
        autocompletion=complete_method,
    ),
]
MemoryOption = Annotated[int | None, typer.Option(help="Samples that may be kept (default: 200)")]
EpochsOption = Annotated[int | None, typer.Option(help="Passes over each task (default: the stream's)")]
TasksOption = Annotated[int | None, typer.Option(help="Only the first T tasks")]
PrecisionOption = Annotated[str, typer.Option(help="auto, float32 or bfloat16 (auto: bfloat16 on a GPU)")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda")]
RowsOption = Annotated[int, typer.Option(help="About how many rows to look at (0: all)", min=0)]
SeedOption = Annotated[int, typer.Option(help="Of everything random in the analysis")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")]
StreamOption = Annotated[
    str,
    typer.Option(
        help="A stream of `sncl list`, or your own data: a table, an .npz file, a folder of images",
        autocompletion=complete_stream,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting", autocompletion=complete_setting),
]
OWN_DATA = "Your own data"
CutOption = Annotated[
    str | None,
    typer.Option(
        help="What makes a task: classes, domain, or none (one pass in file order, without boundaries). "
        "Default: domain where there are any, else classes",
        rich_help_panel=OWN_DATA,
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The labels of a table (default: the column target, label, class or y, else the last)",
        rich_help_panel=OWN_DATA,
    ),
]
DomainOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column or array of domains", rich_help_panel=OWN_DATA),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Leave this column of a table out", rich_help_panel=OWN_DATA),
]
CategoryOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="The values of this column are categories", rich_help_panel=OWN_DATA),
]
NumberOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="The values of this column are numbers", rich_help_panel=OWN_DATA),
]
SizeOption = Annotated[
    int | None,
    typer.Option(help="Resize images to so many pixels a side", min=1, rich_help_panel=OWN_DATA),
]
SplitOption = Annotated[
    str | None, typer.Option(metavar="TASKSxCLASSES", help="Cut the classes like this, as 5x2; short for --set split=")
]
ClassesOption = Annotated[
    int | None, typer.Option("--classes-per-task", help="Cut the classes into tasks of so many", min=1)
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Also write a page about these runs")
]
TensorboardOption = Annotated[
    bool, typer.Option("--tensorboard", help="Also write logs for TensorBoard into the run folder (needs tensorboard)")
]
ELSEWHERE = "More than one machine"
OnOption = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="Where the runs are made: local, ray, ray://HOST:PORT or slurm",
        rich_help_panel=ELSEWHERE,
    ),
]
SlurmOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="With --on slurm: partition, time, gpus, mem or another option of sbatch; may be repeated",
        rich_help_panel=ELSEWHERE,
    ),
]


def fleet_of(on: str, slurm: list[str] | None) -> Fleet | None:
    """Where the runs are made; None for this machine."""
    from sncl.executors.fleet import choose_fleet

    return choose_fleet(on, pairs(slurm, "--slurm"))


def pairs(texts: list[str] | None, option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """What an option that may be repeated says about each key."""
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise SnclError(f"{option} takes {form}, not {text!r}")
        found[key.strip()] = value.strip()
    return found


def names(given: list[str] | None) -> list[str]:
    """Names from an option that may be repeated and may hold commas."""
    return [name.strip() for text in given or [] for name in text.split(",")]


def numbers(text: str, option: str) -> tuple[float, ...]:
    """Sizes from an option that holds commas: none is negative, and they grow."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise SnclError(f"{option} takes numbers with commas between them, not {text!r}") from error
    if not all(0 <= size < math.inf for size in found) or sorted(set(found)) != list(found):
        raise SnclError(f"{option} takes numbers from 0 on that grow, not {text!r}")
    return found
