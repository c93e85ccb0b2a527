"""The page itself: ``page.html`` with its sections, style, script, data and plotly inside.

Everything that comes from files is text: escaped in HTML, and as JSON without any ``<``, so that no name can end the
element it lies in. The page may not load anything: its policy forbids it, and it has no need to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import sncl
from sncl.report.figures.figure import groups_by_stream
from sncl.report.groups import RunGroup, mixtures
from sncl.report.sections import sections
from sncl.report.stored import read_stored, read_sweeps
from sncl.runs.folders import Notify

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def page(groups: Sequence[RunGroup], note: Notify) -> str:
    """The whole page as text."""
    stored = {each.first_folder: read_stored(each.runs[0], note) for each in groups}
    sweeps = read_sweeps([run for each in groups for run in each.runs], note)
    parts = sections(groups, stored, sweeps)
    streams = list(groups_by_stream(groups))
    runs = sum(len(each.runs) for each in groups)
    kinds = f"{len(groups)} {'setting' if len(groups) == 1 else 'settings'}"
    return Template(resource("page.html")).substitute(
        policy=escape(POLICY),
        title=escape(f"sncl · {', '.join(streams) if len(streams) <= 2 else f'{len(streams)} streams'}"),
        subtitle=f"{kinds}, {runs} {'run' if runs == 1 else 'runs'}",
        contents="\n".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in parts),
        warnings="\n".join(f'<p class="warning">{escape(text)}</p>' for text in mixtures(groups)),
        sections="\n".join(
            f'<section id="{each.name}"><h2>{escape(each.title)}</h2>\n{each.content()}\n</section>' for each in parts
        ),
        version=escape(sncl.__version__),
        style=resource("style.css"),
        script=resource("script.js"),
        data=embedded([asdict(figure) for each in parts for figure in each.figures]),
        plotly=resource("charts/plotly.min.js"),
    )


def resource(name: str) -> str:
    """A file that lies beside this one, or below it."""
    return files("sncl.report").joinpath(name).read_text(encoding="utf-8")


def embedded(value: Any) -> str:
    """JSON that may lie in a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
