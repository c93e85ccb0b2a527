"""Where commands print: results to the one stream, what is said about them to the other."""

from __future__ import annotations

import json
import sys
from typing import Any

from sncl.cli.words import as_options
from sncl.live.drawing import bare_table
from sncl.live.terminal import SafeConsole

# A file name may hold [brackets] and :names:, and a pipe has no width to cut a table down to.
out = SafeConsole(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 200)
err = SafeConsole(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)

INTERRUPTED = 130  # what a shell calls Ctrl-C, and Typer too


def say(text: str) -> None:
    """Something the library has to say, in the words of the command line."""
    err.print(as_options(text))


def print_note(text: str | None) -> None:
    """What stands below a table, in the words of the command line."""
    if text is not None:
        out.print(as_options(text), soft_wrap=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(headings: list[str], cells: list[list[str]], title: str | None = None) -> None:
    out.print(bare_table(headings, cells, title))
