"""Notebooks as pages: text as it stands, code and what it gave below it, pictures as files beside the page."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(\]\([^)\s:]+)\.ipynb(?=[)#])")  # to a notebook of the project, in Markdown
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}
ATTRIBUTES = re.compile(r"<(table|tr|div)\b[^>]*>")
TOP = """\
*A notebook of [the repository]({back}README.md): <a href="{name}" download>download it</a>. The tests run it; what it
shows is what it gave.*
"""


def joined(text: str | list[str]) -> str:
    """A notebook may keep text as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def fenced(text: str, kind: str) -> str:
    fence = "`" * (3 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


def table(html: str) -> str:
    """A table without its own style, so that it looks like the others of the site."""
    bare = re.sub(r"<style\b.*?</style>", "", html, flags=re.DOTALL)
    return '<div class="output">\n' + re.sub(r"\n\s*\n", "\n", ATTRIBUTES.sub(r"<\1>", bare)).strip() + "\n</div>"


def output(made: dict[str, Any], alt: str, name: str) -> tuple[str, dict[str, bytes]]:
    """What a cell gave, as Markdown, and the picture it needs by its name."""
    if made["output_type"] == "stream":
        return fenced(joined(made["text"]), "{ .text .output }"), {}
    data = made["data"]
    for kind, ending in PICTURES.items():
        if kind in data:
            content = joined(data[kind])
            picture = base64.b64decode(content) if ending == "png" else content.encode()
            return f"![{alt}]({name}.{ending}){{ .output }}", {f"{name}.{ending}": picture}
    if "text/html" in data:
        return table(joined(data["text/html"])), {}
    return fenced(joined(data["text/plain"]), "{ .text .output }"), {}


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names of their files."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(fenced(text, "python"))
        for made in cell["outputs"]:
            name = f"{path.stem}-{len(pictures) + 1}"
            shown, drawn = output(made, cell["metadata"].get("alt", "What the code above draws"), name)
            parts.append(shown)
            pictures |= drawn
    title, text = parts[0].split("\n", 1) if "\n" in parts[0] else (parts[0], "")
    return "\n\n".join([title, TOP.format(back="../", name=path.name), text, *parts[1:]]) + "\n", pictures


def links(markdown: str) -> str:
    """Links to notebooks lead to their pages.

    >>> links("[first steps](../notebooks/first_steps.ipynb)")
    '[first steps](../notebooks/first_steps.md)'
    """
    return LINK.sub(r"\1.md", markdown)
