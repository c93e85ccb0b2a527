"""``sncl bench``."""

from __future__ import annotations

from typing import Annotated

import typer

from sncl.cli.choosing import choose_stream
from sncl.cli.console import err, print_json
from sncl.cli.options import (
    CategoryOption,
    CutOption,
    DeviceOption,
    DomainOption,
    IgnoreOption,
    JsonOption,
    NumberOption,
    SizeOption,
    TargetOption,
    names,
)
from sncl.cli.timings import show
from sncl.errors import SnclError


def bench_command(
    device: DeviceOption = "auto",
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what",  # with this metavar alone typer 0.27 calls the option --WHAT
            metavar="WHAT",
            help="steps, tests (their share of a run), rows (one at a time), start (first seconds) or first-step (of a "
            "run on a GPU); commas or repeated. Default: steps, rows and start; with --stream, steps",
        ),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Only the shapes of perm-mnist, seq-cifar10 or seq-tinyimagenet, or your own data: folder:PATH"
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only er, derpp or sncl")] = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    ignore: IgnoreOption = None,
    category: CategoryOption = None,
    number: NumberOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """How fast a training step and a single row are here, beside the bare network's passes for them (the bound)."""
    from sncl.bench.suite import bench
    from sncl.training.engine import choose_device

    place = str(choose_device(device))
    if stream is None and any(each for each in (cut, target, domain, size, ignore, category, number)):
        raise SnclError("--cut, --target, --domain, --size and those of columns need a --stream of your own data")
    chosen = None
    if stream is not None:
        chosen = choose_stream(stream, cut, target, domain, size, ignore=ignore, category=category, number=number)
    with err.status("measuring ...") as status:
        streams, methods = ([name] if name else None for name in (chosen.stream if chosen else None, method))
        user_data = chosen.user_data if chosen else None
        measured = bench(
            place, streams, methods, lambda now: status.update(f"measuring {now}"), user_data, names(what) or None
        )
    if as_json:
        print_json(measured.to_json())
    else:
        show(measured, place)
