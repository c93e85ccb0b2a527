"""The page itself: sections, tables and figures as HTML, with style, script, data and plotly inside.

Everything that comes from files is text: escaped in HTML, and as JSON without any ``<``, so that no name can end the
element it lies in. The page may not load anything: its policy forbids it, and it has no need to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import sncl
from sncl.report import charts, tables
from sncl.report.charts import Figure
from sncl.report.collect import Group, Note, Run, mixtures
from sncl.report.stored import Sheet, Stored, read_stored

MOST_SHEETS = 12
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

Section = tuple[str, str, str]  # its name, its title, its content as HTML

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style
</style>
</head>
<body>
<header>
<div><h1>$title</h1><p class="quiet">$subtitle</p></div>
<button type="button" id="theme" aria-label="Switch between light and dark">dark</button>
</header>
<nav aria-label="Contents"><ol>
$contents
</ol></nav>
<main>
$warnings
<noscript><p class="warning">The charts need JavaScript; the tables are complete without.</p></noscript>
$sections
</main>
<footer class="quiet">Made by sncl $version. This file is complete: it loads nothing from anywhere.</footer>
<script type="application/json" id="figures">$data</script>
<script>$plotly</script>
<script>
$script
</script>
</body>
</html>
""")


def page(groups: Sequence[Group], note: Note) -> str:
    """The whole page as text."""
    from plotly.offline import get_plotlyjs

    stored = {str(each.runs[0].folder): read_stored(each.runs[0], note) for each in groups}
    parts, figures = sections(groups, stored)
    streams = list(charts.by_stream(groups))
    runs = sum(len(each.runs) for each in groups)
    kinds = f"{len(groups)} {'setting' if len(groups) == 1 else 'settings'}"
    return PAGE.substitute(
        policy=escape(POLICY),
        title=escape(f"sncl · {', '.join(streams) if len(streams) <= 2 else f'{len(streams)} streams'}"),
        subtitle=f"{kinds}, {runs} {'run' if runs == 1 else 'runs'}",
        contents="\n".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in parts),
        warnings="\n".join(f'<p class="warning">{escape(text)}</p>' for text in mixtures(groups)),
        sections="\n".join(
            f'<section id="{name}"><h2>{escape(title)}</h2>\n{content}\n</section>' for name, title, content in parts
        ),
        version=escape(sncl.__version__),
        style=user_data("style.css"),
        script=user_data("script.js"),
        data=embedded([asdict(each) for each in figures]),
        plotly=get_plotlyjs(),
    )


def user_data(name: str) -> str:
    return files("sncl.report").joinpath(name).read_text(encoding="utf-8")


def embedded(value: Any) -> str:
    """JSON that may lie in a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def sections(groups: Sequence[Group], stored: Mapping[str, Stored]) -> tuple[list[Section], list[Figure]]:
    """The sections that have something to show, and the figures in them."""
    wanted: list[tuple[str, str, str, list[Figure]]] = [
        ("results", "Final results", final_tables(groups), []),
        ("over-time", "Accuracy over time", "", [charts.accuracy(groups)]),
        ("matrices", "Accuracy matrix", "", [charts.matrices(groups)]),
        ("by-task", "Forgetting", "", [charts.forgetting(groups)]),
        ("training", "Training losses", "", [charts.losses(groups)]),
        ("spent", "Time and memory", "", [charts.costs(groups)]),
        (
            "memory",
            "The memory",
            sheets(groups, stored),
            [charts.balance(groups), charts.stored_losses(groups, stored)],
        ),
        (
            "sparsity",
            "Sparsity",
            "",
            [
                charts.open_gates(groups),
                charts.neuron_use(groups),
                charts.overlap(groups),
                charts.gate_histogram(groups, stored),
            ],
        ),
        ("settings", "Settings and manifest", settings(groups), []),
    ]
    parts, figures = [], []
    for name, title, content, several in wanted:
        drawn = [each for each in several if each.views]
        if content or drawn:
            parts.append(
                (name, title, "\n".join([*(figure(each, len(drawn) + bool(content) > 1) for each in drawn), content]))
            )
            figures += drawn
    return parts, figures


def figure(each: Figure, with_title: bool) -> str:
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


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]], name: str) -> str:
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


def final_tables(groups: Sequence[Group]) -> str:
    parts = [
        f"<h3>{escape(stream)}</h3>" + grid(headings, lines, stream) for stream, headings, lines in tables.final(groups)
    ]
    scored = {str(run.result.get("scored_on", "test")) for each in groups for run in each.runs}
    note = (
        f"Accuracy on the {' or '.join(sorted(scored))} set after the last task, mean ± standard deviation over seeds."
    )
    return "\n".join([*parts, f'<p class="quiet">{escape(note)}</p>'])


def sheets(groups: Sequence[Group], stored: Mapping[str, Stored]) -> str:
    """The images the memories hold, each sheet behind its title."""
    found = [(each, stored[str(each.runs[0].folder)].sheet) for each in groups]
    shown = [(each, sheet) for each, sheet in found if sheet is not None]
    parts = [gallery(each, sheet, number == 0) for number, (each, sheet) in enumerate(shown[:MOST_SHEETS])]
    if not parts:
        return ""
    left = f" Of {len(shown)} memories the first {MOST_SHEETS} are shown." if len(shown) > MOST_SHEETS else ""
    note = f"What the memory of the first seed holds at the end, sorted by class.{left}"
    return "\n".join([f'<h3>Images in the memory</h3><p class="quiet">{note}</p>', *parts])


def gallery(group: Group, sheet: Sheet, is_open: bool) -> str:
    counts = ", ".join(f"{group.runs[0].class_name(label)}: {count}" for label, count in sheet.counts.items())
    images = sum(sheet.counts.values())
    caption = f"{images} of {sheet.stored} images, row by row: {counts}"
    title = f"{group.stream} · {group.name(group.runs[0])}"
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>"
        f'<figure><img class="sheet" src="{sheet.uri}" width="{sheet.width}" height="{sheet.height}" '
        f'alt="{escape(caption)}"><figcaption class="quiet">{escape(caption)}</figcaption></figure></details>'
    )


def settings(groups: Sequence[Group]) -> str:
    """What every group was made with, each behind its title."""
    return "\n".join(
        f"<details><summary>{escape(f'{each.stream} · {each.title}')}</summary>"
        + grid(["setting", "value"], [[key, value] for key, value in manifest(each).items()], "settings")
        + "</details>"
        for each in groups
    )


def manifest(group: Group) -> dict[str, str]:
    """What the runs of a group were made with; where they differ, all values there are."""
    keys = ("protocol", "data", "device", "precision", "engine", "threads", "epochs", "tasks", "validation")
    told = [
        {
            "seeds": str(run.seed),
            "folders": run.folder.name,
            **{key: str(run.manifest.get(key, "–")) for key in keys},
            "versions": versions(run),
            **{str(key): str(value) for key, value in run.experiment["settings"].items()},
        }
        for run in group.runs
    ]
    return {key: ", ".join(dict.fromkeys(each[key] for each in told)) for key in told[0]}


def versions(run: Run) -> str:
    found = run.manifest.get("versions")
    return ", ".join(f"{name} {value}" for name, value in found.items()) if isinstance(found, dict) else "–"
