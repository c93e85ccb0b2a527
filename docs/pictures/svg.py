"""Shapes of a picture as SVG text. A picture is a card of its own, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
svg { --card: #ffffff; --line: #c6cbd2; --faint: #eef0f3; --word: #1f2328; --quiet: #59636e;
  --a: #c2324a; --b: #96650a; --c: #2f52c9; --d: #1a7f5a; --e: #8a3fa8; }
@media (prefers-color-scheme: dark) {
  svg { --card: #1c2027; --line: #4d5561; --faint: #2a303a; --word: #e8eaed; --quiet: #a9b1bb;
    --a: #ff8094; --b: #e8b04a; --c: #8fa8ff; --d: #5fd0a0; --e: #d79bf0; }
}
text { font: 13px system-ui, sans-serif; fill: var(--word); }
.title { font-weight: 600; font-size: 14px; }
.quiet { fill: var(--quiet); font-size: 12px; }
.tile { font-weight: 600; font-size: 14px; }
"""


def picture(width: int, height: int, title: str, shapes: Iterable[str]) -> str:
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="var(--card)"/>\n{inside}\n</svg>\n'
    )


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def word(x: float, y: float, text: str, kind: str = "", anchor: str = "start", colour: str = "") -> str:
    fill = f' style="fill: var(--{colour})"' if colour else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{named}{fill}>{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str = "faint", line: str = "line") -> str:
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" rx="4" '
        f'fill="var(--{fill})" stroke="var(--{line})"/>'
    )


def bar(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> str:
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
        f'fill="var(--{colour})" fill-opacity="{opacity}"/>'
    )


def tile(x: float, y: float, label: str, colour: str, angle: float = 0, size: float = 26) -> str:
    """A sample: what it shows, in the colour of its task."""
    middle = size / 2
    turned = f' transform="rotate({number(angle)} {number(x + middle)} {number(y + middle)})"' if angle else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{size}" height="{size}" rx="3" fill="var(--{colour})" '
        f'fill-opacity="0.16" stroke="var(--{colour})"/>'
        f'<text class="tile" x="{number(x + middle)}" y="{number(y + middle + 5)}" text-anchor="middle"{turned}>'
        f"{escape(label)}</text>"
    )


def dot(x: float, y: float, radius: float, colour: str, filled: bool = True) -> str:
    fill = f"var(--{colour})" if filled else "none"
    return (
        f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{fill}" '
        f'stroke="var(--{colour if filled else "line"})"/>'
    )


def line(points: Sequence[tuple[float, float]], colour: str, width: float = 2) -> str:
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="{width}"/>'


def band(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f'<polygon points="{path}" fill="var(--{colour})" fill-opacity="0.18"/>'


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = "quiet") -> str:
    """Along one axis, or slanted by little."""
    across = abs(to_x - x) >= abs(to_y - y)
    back = 6 if (to_x > x if across else to_y > y) else -6
    head = [(to_x - back, to_y - 4), (to_x, to_y), (to_x - back, to_y + 4)]
    if not across:
        head = [(to_x - 4, to_y - back), (to_x, to_y), (to_x + 4, to_y - back)]
    return line([(x, y), (to_x, to_y)], colour, 1.5) + line(head, colour, 1.5)
