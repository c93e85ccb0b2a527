"""``sncl list`` and ``sncl data``: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from sncl.cli.completion import complete_data_set
from sncl.cli.console import err, out, print_json, print_table, say
from sncl.cli.options import DataOption, JsonOption


def needs(name: str) -> list[str]:
    """Where a method applies: whether it keeps a memory, must be told where tasks end, and the task at test time."""
    from sncl.methods.table import entry

    method = entry(name)
    said = (method.memory, method.boundaries, method.task_at_test)
    return ["yes" if each else "–" for each in said]


def list_names(as_json: JsonOption = False) -> None:
    """The methods and streams there are, and where each method applies."""
    from sncl.methods.own import plugins
    from sncl.methods.table import METHODS
    from sncl.streams.benchmarks import STREAMS
    from sncl.streams.user.spec import FORMS

    offered = METHODS | plugins(lambda text: say(f"warning: {text}"))
    if as_json:
        print_json({"methods": list(offered), "streams": list(STREAMS), "user_data": list(FORMS)})
        return
    methods = [[name, entry.title, *needs(name), entry.reference] for name, entry in offered.items()]
    print_table(["method", "", "memory", "boundaries", "task at test", "reference"], methods)
    out.print()
    streams = [[name, each.network, str(each.epochs), each.description] for name, each in STREAMS.items()]
    print_table(["stream", "network", "epochs", ""], streams)
    out.print()
    print_table(["your own data", ""], [[form, what] for form, what in FORMS.items()])


def data_inventory(context: typer.Context, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Say which data sets are there."""
    from sncl.streams.datasets.sources import data_root, inventory

    if context.invoked_subcommand is not None:
        return
    root = data_root(data)
    found = inventory(root)
    if as_json:
        print_json({"root": str(root), "data": [each._asdict() for each in found]})
        return
    out.print(f"data folder: {root}", soft_wrap=True)
    cells = [[each.name, "yes" if each.present else "no", each.detail, each.path] for each in found]
    print_table(["data set", "there", "", "where"], cells)


def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist, cifar10 or tiny-imagenet", autocompletion=complete_data_set)],
    data: DataOption = None,
    mirror: Annotated[str | None, typer.Option(help="Base address to download from instead")] = None,
) -> None:
    """Download a data set from its official place, with checksum; an interrupted download goes on."""
    from sncl.cli.bars import download_bar
    from sncl.streams.datasets.fetch import fetch
    from sncl.streams.datasets.sources import data_root

    root = data_root(data)
    with download_bar(err) as progress:
        paths = fetch(name, root, mirror=mirror, progress=progress)
    for path in paths:
        out.print(str(path), soft_wrap=True)
