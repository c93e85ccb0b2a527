"""``sncl bench``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sncl.cli.choosing import choose_stream
from sncl.cli.console import err, out, print_json, print_table
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
)
from sncl.errors import SnclError


def bench_command(
    device: DeviceOption = "auto",
    stream: Annotated[
        str | None,
        typer.Option(help="Only the shapes of perm-mnist or seq-cifar10, or your own data: folder:PATH"),
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
    """How fast a training step is here, beside the bare network's passes on as many images (the bound)."""
    from sncl.bench.suite import bench, to_json
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
        rows, outside = bench(place, streams, methods, lambda what: status.update(f"measuring {what}"), user_data)
    if as_json:
        print_json(to_json(rows, outside))
        return
    show_steps(rows, place)
    out.print()
    show_outside(outside)


def show_steps(rows: Sequence[Any], place: str) -> None:
    """How long a step takes, beside the bound."""
    headings = ["stream", "method", "memory", "runs", "ms a step", "bound, ms", "ratio", "images/s", "peak MB"]
    cells = [
        [
            row.stream,
            row.method,
            str(row.memory),
            str(row.runs),
            f"{row.ms_per_step:.2f}",
            f"{row.bound_ms:.2f}",
            f"{row.ratio:.2f}",
            f"{row.images_per_s:,.0f}",
            f"{row.peak_mb:,.0f}",
        ]
        for row in rows
    ]
    print_table(
        headings, cells, title=f"one step on {place}; with several runs at once, time divided by the steps of all"
    )


def show_outside(outside: Sequence[Any]) -> None:
    """How long a whole run spends outside its steps."""
    headings = ["stream", "method", "outside steps", "evaluation, s", "checkpoints, s", "losses, s", "steps, s"]
    cells = [
        [
            each.stream,
            each.method,
            f"{each.percent:.1f} %",
            f"{each.evaluation_s:.1f}",
            f"{each.checkpoints_s:.1f}",
            f"{each.logging_s:.1f}",
            f"{each.steps_s:.0f}",
        ]
        for each in outside
    ]
    print_table(headings, cells, title="a whole run, reckoned from its parts")
