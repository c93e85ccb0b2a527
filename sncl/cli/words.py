"""Messages of the library in the words of the command line.

The library names its arguments in backquotes. Those that are options become options, settings become ``--set``, and
other backquotes are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

QUOTED = re.compile("`([^`]*)`")
REPEATED = {"categories": "category", "numbers": "number"}  # arguments with many values are options with one


def as_options(text: str) -> str:
    """The text with every backquoted argument as it is given on the command line.

    >>> as_options('`memory` is at least 1 sample, not 0; use `device="cpu"` or a smaller `lr`')
    '--memory is at least 1 sample, not 0; use --device cpu or a smaller --set lr=...'
    """
    return QUOTED.sub(lambda found: option(found[1]), text)


def option(quoted: str) -> str:
    """One argument, perhaps with a value, as an option; anything else as it is."""
    name, _, value = quoted.partition("=")
    value = value.strip("\"'")
    name = REPEATED.get(name, name)
    if name == "settings":  # one option for each of them
        return f"--set {value}".strip()
    if name in option_names():
        return f"--{name.replace('_', '-')}" + (f" {value}" if value not in ("", "True") else "")
    if name in setting_names():
        return f"--set {name}={value or '...'}"
    return quoted


@cache
def option_names() -> frozenset[str]:
    """All options of all commands, as arguments are named."""
    from typer.main import get_command

    from sncl.cli.commands import app

    def long_names(command: Any) -> Iterator[str]:
        for each in getattr(command, "commands", {}).values():
            yield from long_names(each)
        for parameter in command.params:
            yield from (name for name in parameter.opts if name.startswith("--"))

    return frozenset(name.removeprefix("--").replace("-", "_") for name in long_names(get_command(app)))


@cache
def setting_names() -> frozenset[str]:
    """All settings that training and the methods have."""
    from sncl.methods.table import METHODS
    from sncl.runs.settings import NEUTRAL, TRAINING

    of_methods = {name for entry in METHODS.values() for name in entry.all_names()}
    return frozenset(of_methods | TRAINING.keys() | NEUTRAL.keys() | {"width", "split", "augment"})
