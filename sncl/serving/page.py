"""The page of a server: forms that call it, in one file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

import sncl

TOKEN = '<form><label>Token <input id="token" type="password" autocomplete="off"></label></form>'


def page(wants_token: bool) -> str:
    """The whole page as text."""
    return Template(_resource("page.html")).substitute(
        version=escape(sncl.__version__),
        token=TOKEN if wants_token else "",
        style=_resource("style.css"),
        script=_resource("script.js"),
    )


@cache
def page_policy() -> str:
    """What a browser may do with the page: run this script, show this style, ask this server."""
    script, style = (_hash(_resource(name)) for name in ("script.js", "style.css"))
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _resource(name: str) -> str:
    """A file that lies beside this one."""
    return files("sncl.serving").joinpath(name).read_text(encoding="utf-8")
