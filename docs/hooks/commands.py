"""The reference of the command line, from the commands themselves: what ``--help`` says, as one page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from written import table

from sncl.cli.commands import app

INTRODUCTION = """\
# Commands and options

This page is written by the program: it is what `sncl COMMAND --help` says. An error that you can correct is one
line on standard error with exit code 2; a run that was interrupted ends with 130, and the same command goes on.
"""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name. Groups that do something by themselves count too."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield name, command
    for child, below in children.items():
        yield from leaves(below, f"{name} {child}")


def shown(parameter: Any, context: Any) -> list[str]:
    """An option or argument, and what is said of it."""
    name, text = parameter.get_help_record(context)
    more = "; may be repeated" if parameter.multiple and "repeated" not in text else ""
    return [f"`{name}`", text + more]


def described(name: str, command: Any) -> str:
    """Usage, what the command does, and a table for each group of its options."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"## {name}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    panels: dict[str, list[list[str]]] = {}
    for parameter in command.params:
        if parameter.get_help_record(context) is None:
            continue
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(shown(parameter, context))
    for title, rows in panels.items():
        parts.append((f"*{title}*\n\n" if title else "") + table(["option", "meaning"], rows))
    return "\n\n".join(parts)


def page() -> str:
    found = [described(name, command) for name, command in leaves(typer.main.get_command(app), "sncl")]
    return "\n".join([INTRODUCTION, "\n\n".join(found)]) + "\n"
