"""``sncl serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sncl.cli.completion import complete_run
from sncl.cli.console import say
from sncl.cli.options import DeviceOption


def serve_command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SNAPSHOT",
            help="A run folder, or a file of an estimator or of a server",
            autocompletion=complete_run,
        ),
    ],
    host: Annotated[str, typer.Option(help="Where to listen; other machines need a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What requests must bear (default: $SNCL_TOKEN, which other users cannot see)"),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What keeps what is learned (default: RUN/serving.safetensors, or beside the file)"
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(help="Write requests through to the disk behind so many of them; 1: before each answer", min=1),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Between snapshots, and at most until the disk has a request")] = 60.0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request", min=1)] = 8 * 2**20,
    max_rows: Annotated[int, typer.Option(help="Rows of a request", min=1)] = 10_000,
    queue: Annotated[int, typer.Option(help="Requests that may wait to be learned", min=1)] = 256,
    pending: Annotated[int, typer.Option(help="Predictions that may wait for their labels", min=1)] = 100_000,
    device: DeviceOption = "cpu",
) -> None:
    """Serve a model over HTTP that predicts while it learns.

    POST /predict and /learn, GET /metrics and /healthz; a page to try them at /. Needs the extra serve.
    """
    from sncl import serving

    serve = serving.serve  # says what is not installed
    from sncl.serving.opening import open_model
    from sncl.serving.server import check_access, given_token

    token = given_token(token)
    check_access(host, token)
    opened = open_model(model, device)
    file = snapshot or opened.snapshot
    if file.exists() and file.resolve() != model.resolve():
        say(f"goes on from {file}; move it away, with its journal, to begin with {model} again")
    serve(
        opened.model,
        host=host,
        port=port,
        token=token,
        snapshot=file,
        every=every,
        seconds=seconds,
        max_body=max_body,
        max_rows=max_rows,
        queue=queue,
        pending=pending,
        say=say,
    )
