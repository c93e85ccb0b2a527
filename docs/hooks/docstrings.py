"""Docstrings as Markdown: roles such as :meth:`learn` become code, and examples become blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:meth|class|attr|func|mod|data):`~?([^`]+)`")
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def as_markdown(text: str) -> str:
    """Examples are fenced, and a role is its name as code.

    >>> as_markdown("see :meth:`learn`")
    'see `learn`'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", ROLE.sub(r"`\1`", text))


class Docstrings(griffe.Extension):
    """Rewrite every docstring that is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
