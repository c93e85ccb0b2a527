"""Small pictures out of block characters, and numbers as people read them. Colour never says more than the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

BLOCKS = " ▁▂▃▄▅▆▇█"
LEVELS = len(BLOCKS) - 1
LEAST_RANGE = 4.0
SHADES = ((222, 88, 76), (229, 178, 64), (72, 182, 112))  # red, amber, green


def shade(percent: float) -> str:
    """A colour between red (0 %) and green (100 %), over amber."""
    place = min(max(percent / 100, 0.0), 1.0) * (len(SHADES) - 1)
    lower = min(int(place), len(SHADES) - 2)
    ends = zip(SHADES[lower], SHADES[lower + 1], strict=True)
    return "#" + "".join(f"{round(low + (high - low) * (place - lower)):02x}" for low, high in ends)


def column(part: float, height: int) -> str:
    """A bar that stands, from its top to its bottom; one that is not empty can be seen."""
    filled = max(round(part * height * LEVELS), 1 if part > 0 else 0)
    return "".join(BLOCKS[min(max(filled - row * LEVELS, 0), LEVELS)] for row in reversed(range(height)))


def spark(values: Sequence[float], width: int, top: float | None = None) -> str:
    """Values as small bars, at most ``width``; more of them are averaged. The highest is ``top`` or the largest."""
    values = thinned(values, width)
    highest = max(values, default=0.0) if top is None else top
    return "".join(column(max(value, 0) / highest if highest > 0 else 0.0, 1) for value in values)


def course(values: Sequence[float], width: int) -> str:
    """The same for what falls by orders of magnitude: the logarithm, from the lowest value to the highest.

    A range of less than a factor ``LEAST_RANGE`` does not fill the height, so that noise does not look like news.
    """
    values = thinned(values, width)
    if min(values, default=0.0) <= 0:
        return spark(values, width)
    high = math.log(max(values))
    low = min(math.log(min(values)), high - math.log(LEAST_RANGE))
    return "".join(BLOCKS[1 + round((math.log(value) - low) / (high - low) * (LEVELS - 1))] for value in values)


def thinned(values: Sequence[float], width: int) -> Sequence[float]:
    """At most ``width`` values, by averages of neighbours."""
    if len(values) <= width:
        return values
    edges = [number * len(values) // width for number in range(width + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]


def bar(part: float, width: int, style: str) -> Text:
    """A bar that lies, as rich draws them, with a rail that is also there without colour."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return Text("━" * filled, style) + Text("─" * (width - filled), "bright_black")


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds."""
    if seconds is None:
        return "–:––"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def speed(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def one_line(width: int, *parts: str | Text | tuple[str, str]) -> Text:
    """The parts side by side, cut where there is no room."""
    line = Text.assemble(*parts)
    line.truncate(width, overflow="ellipsis")
    return line


def framed(title: str, *lines: RenderableType) -> Panel:
    """The lines in a frame, which does not lend its colour to the title."""
    heading = Text(title, "bold default")
    return Panel(Group(*lines), box.ROUNDED, title=heading, title_align="left", border_style="bright_black")


def bare_table(headings: Sequence[str], cells: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A table without lines; what stands in a column with a heading is not broken."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "")
    for row in cells:
        table.add_row(*row)
    return table
