"""``sncl export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sncl.cli.completion import complete_run
from sncl.cli.console import err, out, print_json, print_table
from sncl.cli.options import DataOption, JsonOption
from sncl.errors import SnclError
from sncl.training.stopping import stop_code


def export_command(
    run: Annotated[
        Path, typer.Argument(help="The folder of a finished run of sncl train", autocompletion=complete_run)
    ],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="An ONNX file (the default; needs onnx, onnxscript, onnxruntime)")
    ] = False,
    torch_program: Annotated[bool, typer.Option("--torch", help="A program for torch.export.load")] = False,
    file: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to (default: RUN/model.onnx or .pt2)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the network of a run as one file that predicts without sncl, closed neurons removed.

    From images as they are stored to logits; compared on the test data, and measured, before it is written.
    """
    from sncl.export import account_file, choose_format, export
    from sncl.runs.loading import load_run

    if onnx and torch_program:
        raise SnclError("give either --onnx or --torch, not both")
    form = choose_format("onnx" if onnx else "torch" if torch_program else None, file)
    written = file or run / f"model{form.suffix}"
    if not force and (there := next((each for each in (written, account_file(written)) if each.exists()), None)):
        raise SnclError(f"{there} is there already; --force replaces it, --out names another file")
    if file is not None and not written.parent.is_dir():
        raise SnclError(f"--out is a file in a folder that exists, not {written}")
    try:
        with err.status("loading the run") as status:
            found = export(load_run(run, data, "cpu"), form, written, status.update)
    except KeyboardInterrupt:
        err.print("stopped; nothing was written")
        sys.exit(stop_code())
    if as_json:
        print_json(found)
    else:
        show_account(found, written)


def show_account(found: dict[str, Any], written: Path) -> None:
    """Print what was exported, how large and how fast it is, and where it lies."""
    from sncl.export import account_table, is_busy

    print_table(*account_table(found, written.name))
    out.print()
    out.print(found["summary"], soft_wrap=True)
    out.print(
        f"the same predictions on all {found['test_rows']:,} {found['scored_on']} rows; logits differ by at most "
        f"{found['largest_logit_difference']:.1e}",
        soft_wrap=True,
    )
    machine = found["machine"]
    threads = machine["threads"]
    out.print("bytes: of the weights as safetensors, beside those of the file")
    out.print(f"ms: median, measured in turns on this machine's CPU with {threads} thread{'s' * (threads > 1)}")
    out.print("dense: the same network with all its neurons and without gates, as a file of the same format")
    out.print(f"left: {written.name} in percent of that file")
    if is_busy(machine):
        err.print(f"note: the machine was busy (load {machine['load']}, {machine['cores']} cores): times are too long")
    err.print(f"model: {written}")
