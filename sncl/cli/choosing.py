"""Which stream and which settings the options name; the user's data are read for it."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sncl.cli.console import err, say
from sncl.cli.options import names, pairs
from sncl.errors import SnclError

if TYPE_CHECKING:
    from sncl.runs.choosing import Chosen
    from sncl.runs.experiment import Experiment

RENAMED = {
    "average": "ema",
    "release": "anneal",
    "reserve": "sparsity",
}


def tell(chosen: Chosen, experiment: Experiment) -> None:
    """Say how the user's data were understood and what is done with them, by default or by choice."""
    for line in chosen.lines(experiment):
        say(line)


def choose_method(method: str) -> str:
    """The name of a method; one of your own, ``package.module:Name``, is imported, from the current folder too."""
    from sncl.methods.own import add_method
    from sncl.methods.table import method_name

    if ":" in method and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return method_name(add_method(method))


def choose_stream(
    stream: str,
    cut: str | None,
    target: str | None,
    domain: str | None,
    size: int | None,
    split: str | None = None,
    classes: int | None = None,
    set_: list[str] | None = None,
    ignore: list[str] | None = None,
    category: list[str] | None = None,
    number: list[str] | None = None,
    beside: Path | None = None,
) -> Chosen:
    """Understand the options that name a stream; the user's data are read, unless runs ``beside`` know them."""
    from sncl.cli.bars import reading_bar
    from sncl.runs.choosing import choose
    from sncl.streams.user.spec import beside_benchmark, parse_spec

    settings = in_new_words(pairs(set_, "--set"))
    kinds = names(ignore), names(category), names(number)
    spec = parse_spec(stream, cut, target, domain, size, *kinds)
    if spec is None and (note := beside_benchmark(stream)):
        say(f"note: {note}")
    with reading_bar(err) if spec is not None else nullcontext() as progress:
        return choose(stream, spec, settings, split, classes, progress, beside)


def in_new_words(settings: dict[str, str]) -> dict[str, str]:
    """Settings with the spelling of before 0.2 for "no gates" replaced, with a notice; other old names are errors."""
    for old, new in RENAMED.items():
        if old in settings:
            raise SnclError(f"the setting {old} is called {new} since sncl 0.2")
    try:
        no_gates = float(settings.get("eta", "1")) == 0
    except ValueError:
        no_gates = False
    if no_gates:
        err.print("note: --set eta=0 is --set gates=off since sncl 0.2, and will be an error in the next version")
        settings = {key: value for key, value in settings.items() if key != "eta"} | {"gates": "off"}
    return settings


def from_file(file: Path, chosen: Chosen, method: str, memory: int | None) -> dict[str, str]:
    """The settings in a file, checked by themselves, so that an error says where it comes from."""
    from sncl.methods.table import entry
    from sncl.runs.plan import plan
    from sncl.runs.settings import parse, read_settings

    usual = plan(chosen.stream, method, memory=memory, user_data=chosen.user_data, unchecked=True)
    settings = read_settings(file, chosen.stream, method, usual.memory)
    choices = {key: settings[key] for key in entry(method).choices if key in settings}
    try:
        usual = plan(chosen.stream, method, memory=memory, user_data=chosen.user_data, settings=choices, unchecked=True)
    except SnclError as error:
        raise SnclError(f"{file}: {error}") from error
    for key, text in settings.items():
        parse(key, text, usual.settings, f"{file}:")
    return settings
