"""Where the progress of runs is shown: on a terminal, in a notebook, line by line elsewhere, or nowhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console

from sncl.live.drawing import duration
from sncl.live.jobs import ConsoleDisplay, Display
from sncl.live.terminal import SafeConsole, printable
from sncl.live.view import LiveView

NOTEBOOK_WIDTH = 100  # characters
NOTEBOOK_SECONDS = 0.5  # between two pictures
PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.2;font-family:monospace">{}</pre>'


def choose_display(progress: bool) -> Display:
    """What suits the place where this program runs."""
    if not progress:
        return NoDisplay()
    shell = notebook_shell()
    if shell is not None:
        from IPython.display import display

        return NotebookDisplay(display)
    console = SafeConsole(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return ConsoleDisplay(console)
    return LineDisplay()


def notebook_shell() -> Any:
    """The shell of a notebook's kernel, if this program is one."""
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return shell if hasattr(shell, "kernel") else None


class NoDisplay:
    """Shows nothing."""

    @contextmanager
    def showing(self, view: LiveView) -> Iterator[None]:
        yield

    def told(self, view: LiveView, number: int) -> None:
        """Nobody looks."""

    def say(self, text: str) -> None:
        """Nobody listens."""


class LineDisplay(NoDisplay):
    """A line for each run that has ended, where nothing can be drawn twice."""

    def told(self, view: LiveView, number: int) -> None:
        if view.runs[number].state in ("done", "stopped"):
            self.say(ended_line(view, number))

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)


class NotebookDisplay:
    """The live view as one output of a cell that is drawn anew, and ends as a line."""

    def __init__(self, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.display = display
        self.clock = clock
        self.handle: Any = None
        self.drawn = 0.0

    @contextmanager
    def showing(self, view: LiveView) -> Iterator[None]:
        self.handle = self.display(picture(view), raw=True, display_id=True)
        try:
            yield
        finally:
            self.handle.update(as_mime(final_line(view)), raw=True)

    def told(self, view: LiveView, number: int) -> None:
        now = self.clock()
        if now - self.drawn >= NOTEBOOK_SECONDS:
            self.drawn = now
            self.handle.update(picture(view), raw=True)

    def say(self, text: str) -> None:
        self.display(as_mime(text), raw=True)


def picture(view: LiveView) -> dict[str, str]:
    """The live view as HTML, and as text for what cannot show that."""
    console = Console(
        record=True, file=io.StringIO(), width=NOTEBOOK_WIDTH, height=40, force_terminal=True, force_jupyter=False
    )
    console.print(view)
    html = console.export_html(inline_styles=True, code_format=PRE.format("{code}"), clear=False)
    return {"text/html": html, "text/plain": console.export_text()}


def as_mime(text: str) -> dict[str, str]:
    text = printable(text)
    return {"text/html": f"<div>{escape(text)}</div>", "text/plain": text}


def final_line(view: LiveView) -> str:
    """What is left to say of runs that have ended."""
    ended, total, _, _, note = view.together()
    runs = view.heading if ended == total else f"{ended} of {view.heading}" if total > 1 else f"{view.heading}: stopped"
    return ", ".join(filter(None, [runs, duration(view.clock() - view.begun), note]))


def ended_line(view: LiveView, number: int) -> str:
    """One run that has ended, among the others."""
    run, (ended, total, *_) = view.runs[number], view.together()
    words = [run.title or view.heading, *(f"{value:.2f} %" for value in list(run.accuracy.values())[:1])]
    return f"{ended}/{total} {': '.join(words)}" + (" (stopped)" if run.state == "stopped" else "")
