"""Text that is safe to show: a class, column, folder or server may have any name, and a terminal obeys some of them.

Control characters (C0, DEL and C1, with which all escape sequences begin), marks that change the direction of writing,
separators of lines and halves of characters are shown as Python writes them: ``\\x1b``, ``\\u202e``, ``\\udcff``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, kept: str = "") -> str:
    """The text with what a terminal would obey made visible, but for the characters in ``kept``."""
    return UNSAFE.sub(lambda found: found[0] if found[0] in kept else ascii(found[0])[1:-1], text)


class SafeConsole(Console):
    """A console that shows every text as :func:`printable` has it; its own colours and movements are left alone.

    Strings are changed before they are laid out, so that tables stay straight. Whatever else is drawn is looked at
    behind that.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, kept="\n"), style, control)
