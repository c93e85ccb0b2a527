"""The view: a panel about one run, or a table with a line for each of many and a bar for all.

It is drawn a few times a second by a thread of its own, and only where there is a terminal. Numbers come from
:class:`Followed`; nothing here asks a run for anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from sncl.live.drawing import bar, duration, framed, one_line
from sncl.live.following import Followed
from sncl.live.panel import panel
from sncl.live.table import runs_table
from sncl.live.terminal import printable
from sncl.training.events import Moment

REFRESHES = 4  # in a second
KEPT_RUNS = 12  # that stay in the table when they have ended; of more runs only those that run are shown
AROUND = 6  # lines of a terminal that are not lines of runs


class Overall(NamedTuple):
    """How far all runs together are: how many have ended of how many, which part of the work is done, and which part
    was so when they were started."""

    ended: int
    total: int
    part: float
    earlier: float
    note: str = ""


class LiveView:
    """What is drawn: ``runs``, under a heading, and how far they are together."""

    def __init__(self, heading: str, runs: Sequence[Followed], clock: Callable[[], float] = time.monotonic) -> None:
        self.heading = printable(heading)
        self.runs = list(runs)
        self.clock = clock
        self.begun = clock()
        self.overall: Overall | None = None  # unless told otherwise, it counts the runs

    def tell(self, number: int, moment: Moment | None) -> None:
        self.runs[number].tell(moment)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        own = options.update(no_wrap=True, overflow="ellipsis", highlight=False)  # whatever the console is used for
        height = options.height or console.height
        if len(self.runs) > 1 or self.overall is not None:
            yield from console.render(self.many(own.max_width, height), own)
        elif self.runs[0].moment is not None:
            yield from console.render(panel(self.heading, self.runs[0], own.max_width, height), own)

    def together(self) -> Overall:
        if self.overall is not None:
            return self.overall
        stopped = sum(run.state == "stopped" for run in self.runs)
        ended = stopped + sum(run.state == "done" for run in self.runs)
        part, earlier = (sum(parts) / len(self.runs) for parts in zip(*(run.parts for run in self.runs), strict=True))
        return Overall(ended, len(self.runs), part, earlier, f"{stopped} stopped" if stopped else "")

    def many(self, width: int, height: int) -> RenderableType:
        """The table of runs, cut to the height of the terminal: those that run first."""
        room = max(height - AROUND, 1)
        shown = [run for run in self.runs if run.state in ("reading", "running")]
        if len(self.runs) <= KEPT_RUNS:
            shown = [run for run in self.runs if run.state != "waiting"]
            if len(shown) > room:
                shown.sort(key=lambda run: run.state in ("done", "stopped"))
        left_out = len(shown) - room if len(shown) > room else 0
        lines = runs_table(shown[:room], width - 4) if shown else []
        if left_out:
            lines.append(Text(f"and {left_out} more", "bright_black"))
        if shown:
            lines.append(Text())
        return framed(self.heading, *lines, self.overall_line(width - 4))

    def overall_line(self, width: int) -> Text:
        ended, total, part, earlier, note = self.together()
        elapsed = self.clock() - self.begun
        words = [f"{ended}/{total}", duration(elapsed)]
        if earlier < part < 1:
            words.append(f"about {duration(elapsed * (1 - part) / (part - earlier))} left")
        if part == 0 and all(run.state == "waiting" for run in self.runs):
            note = "starting"
        words += [note] if note else []
        facts = "  " + " · ".join(words)
        length = max(width - 5 - len(facts), 8)
        return one_line(width, ("all  ", "bold"), bar(part, length, "green" if part >= 1 else "cyan"), facts)


@contextmanager
def live(view: LiveView, console: Console) -> Iterator[None]:
    """Draw the view while the block runs, and once more at its end; nothing where there is no terminal."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    with Live(view, console=console, refresh_per_second=REFRESHES, vertical_overflow="crop"):
        yield
