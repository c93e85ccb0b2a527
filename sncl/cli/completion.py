"""What the shell may complete: names of methods, streams and settings, and run folders; nothing heavy is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

RUNS = Path("runs")  # where `sncl train` puts them
MOST_FOLDERS = 200  # offered at once

Offers = list[str]


def starting(names: Iterable[str], incomplete: str) -> Offers:
    return [name for name in names if name.startswith(incomplete)]


def complete_method(incomplete: str) -> Offers:
    from sncl.methods.own import plugin_names
    from sncl.methods.table import METHODS

    return starting([*METHODS, *plugin_names()], incomplete.lower())


def complete_stream(incomplete: str) -> Offers:
    """Benchmarks; files and folders are the shell's own business, which it turns to where there is none."""
    from sncl.streams.benchmarks import STREAMS

    return starting(STREAMS, incomplete)


def complete_setting(incomplete: str) -> Offers:
    from sncl.cli.words import setting_names

    return starting((f"{name}=" for name in sorted(setting_names())), incomplete)


def complete_table(incomplete: str) -> Offers:
    from sncl.paper.tables import values

    return starting(values(), incomplete)


def complete_data_set(incomplete: str) -> Offers:
    return starting(("mnist", "cifar10", "tiny-imagenet"), incomplete)


def complete_run(incomplete: str) -> Offers:
    """Run folders, and the folders on the way to them."""
    below = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    found = [*folders_in(below), *(folders_in(RUNS) if below == Path() else [])]
    return list(islice(dict.fromkeys(starting(found, incomplete)), MOST_FOLDERS))


def folders_in(place: Path) -> Iterator[str]:
    """The folders of a folder; those that are no runs end in a slash, since one may go on from there."""
    if place.is_dir():
        for each in sorted(place.iterdir()):
            if each.is_dir() and not each.name.startswith("."):
                yield str(each) if (each / "experiment.json").is_file() else f"{each}/"
