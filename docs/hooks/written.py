"""Markdown from data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text that stands in one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell(each) for each in line) + " |" for line in lines)


def code(names: Iterable[object]) -> str:
    """Names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
