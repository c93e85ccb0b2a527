"""The commands, and how they end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sncl import __version__
from sncl.cli import STOPPED
from sncl.cli.analyses import (
    analyze_calibration,
    analyze_capacity,
    analyze_fisher,
    analyze_perturbation,
    analyze_sparsity,
    analyze_tsne,
)
from sncl.cli.console import INTERRUPTED, err
from sncl.cli.demo import demo_command
from sncl.cli.inventory import data_fetch, data_inventory, list_names
from sncl.cli.models import export_command
from sncl.cli.prediction import predict_command
from sncl.cli.reports import report_command
from sncl.cli.serving import serve_command
from sncl.cli.speed import bench_command
from sncl.cli.tables import reproduce_command
from sncl.cli.training import train_command
from sncl.cli.tuning import tune_command
from sncl.cli.words import as_options
from sncl.errors import SnclError, nearest, suggestion
from sncl.live.terminal import printable
from sncl.training.stopping import stop_code

# Typer carries its own copy of click from some version on; these are that copy's exceptions, wherever it lies.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
ClickException: type[Exception] = UsageError.__mro__[1]


def command_line() -> None:
    """Run a command; every error a user can put right is one line and exit code 2."""
    try:
        code = app(standalone_mode=False, prog_name="sncl")
    except SnclError as error:
        fail(as_options(str(error)))
    except ClickException as error:
        fail(usage_message(error))
    except OSError as error:
        fail(f"{error.filename or 'the system says'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        err.print(STOPPED)
        code = stop_code()
    sys.exit(code if isinstance(code, int) else 0)


def usage_message(error: Exception) -> str:
    """What is wrong with the words of a command; an option that is not there with the one that may have been meant."""
    name: str | None = getattr(error, "option_name", None)
    near: list[str] | None = getattr(error, "possibilities", None)
    if name is not None and near is not None:
        first = [each for each in nearest(name, near) if each in near][:1]
        return f"there is no option {name}; {suggestion(first)}--help shows all"
    return error.format_message()  # type: ignore[attr-defined,no-any-return]


def fail(message: str) -> None:
    if message:  # a bare `sncl` has printed its help already
        print("error: " + printable(" ".join(message.split())), file=sys.stderr)
    sys.exit(2)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"sncl {__version__}")
        raise typer.Exit


def common(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Version")] = False,
) -> None:
    """Neural networks that learn from a stream without forgetting."""


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    callback=common,
    help="Neural networks that learn from a stream without forgetting.",
)
for name, command in (
    ("list", list_names),
    ("train", train_command),
    ("tune", tune_command),
    ("reproduce", reproduce_command),
    ("predict", predict_command),
    ("export", export_command),
    ("serve", serve_command),
    ("report", report_command),
    ("demo", demo_command),
    ("bench", bench_command),
):
    app.command(name)(command)

data_app = typer.Typer(
    invoke_without_command=True, callback=data_inventory, help="What data is there, and how to get more."
)
data_app.command("fetch")(data_fetch)
app.add_typer(data_app, name="data")

analyze_app = typer.Typer(no_args_is_help=True, help="What the trained networks of finished runs are like.")
for name, analysis in (
    ("perturbation", analyze_perturbation),
    ("fisher", analyze_fisher),
    ("tsne", analyze_tsne),
    ("calibration", analyze_calibration),
    ("sparsity", analyze_sparsity),
    ("capacity", analyze_capacity),
):
    analyze_app.command(name)(analysis)
app.add_typer(analyze_app, name="analyze")
