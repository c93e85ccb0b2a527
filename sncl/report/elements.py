"""Pieces of the page as HTML. Everything that comes from files is text, and escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sncl.report.figures.figure import Figure
from sncl.report.groups import RunGroup
from sncl.report.stored import Sheet


def figure_element(each: Figure, with_title: bool) -> str:
    """Where the script draws a figure. One that is alone in its section needs no title of its own."""
    title = f"<h3>{escape(each.title)}</h3>" if with_title else ""
    buttons = "".join(
        f'<button type="button" data-save="{kind}">{kind.upper()}</button>' for kind in ("png", "svg", "csv")
    )
    return (
        f'<figure class="chart" id="figure-{each.name}"><figcaption>{title}'
        f'<p class="quiet">{escape(each.note)}</p></figcaption>'
        f'<div class="controls"><span class="choices"></span><span class="save">save as {buttons}</span></div>'
        f'<div class="plot" role="img" aria-label="{escape(each.title)}"></div></figure>'
    )


def table_element(headings: Sequence[str], lines: Sequence[Sequence[str]], name: str) -> str:
    """A table that scrolls by itself where it is too wide."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in headings)
    body = "\n".join(
        "<tr>"
        + f'<th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in rest)
        + "</tr>"
        for first, *rest in lines
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def sheet_element(group: RunGroup, sheet: Sheet, is_open: bool) -> str:
    """The images of one memory, behind the title of the run."""
    counts = ", ".join(f"{group.runs[0].class_name(label)}: {count}" for label, count in sheet.counts.items())
    images = sum(sheet.counts.values())
    caption = f"{images} of {sheet.stored} images, row by row: {counts}"
    title = f"{group.stream} · {group.name(group.runs[0])}"
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>"
        f'<figure><img class="sheet" src="{sheet.uri}" width="{sheet.width}" height="{sheet.height}" '
        f'alt="{escape(caption)}"><figcaption class="quiet">{escape(caption)}</figcaption></figure></details>'
    )
