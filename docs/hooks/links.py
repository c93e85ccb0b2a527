"""Where the links of the built site lead: each must reach a file of the site, and an anchor that is on the page.

MkDocs checks links between Markdown pages. What it lets pass is checked here: links to other files, in HTML, in
generated pages and in the theme.
"""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

POINTS = {"href", "src", "data", "poster"}  # attributes that hold one address
ELSEWHERE = "404.html"  # is shown at any address, so its own are absolute


class Markup(HTMLParser):
    """What a page links to, and the names that links can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in POINTS and value:
                self.targets.append(value)
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)


@cache
def read(page: Path) -> Markup:
    return Markup(page.read_text(encoding="utf-8"))


def trouble(page: Path, target: str, site: Path) -> str | None:
    """Why a link leads nowhere, or None. Addresses of other hosts, of mail and of data are not looked at."""
    address = urlsplit(target)
    if address.scheme or address.netloc:
        return None
    path, anchor = unquote(address.path), unquote(address.fragment)
    if path.startswith("/") and page.name != ELSEWHERE:
        return "an absolute path, which is not there when the site is opened from the disk"
    there = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve() if path else page
    if not there.is_relative_to(site):
        return "outside of the site"
    if not there.is_file():
        return "no such file"
    if there.suffix == ".html" and anchor not in read(there).anchors:
        return "no such anchor"
    return None


def broken(site: Path) -> list[str]:
    """A line for each link of any page below ``site`` that leads nowhere."""
    site = site.resolve()
    read.cache_clear()
    found = []
    for page in sorted(site.rglob("*.html")):
        for target in dict.fromkeys(read(page).targets):
            if why := trouble(page, target, site):
                found.append(f"{page.relative_to(site).as_posix()} links to {target}: {why}")
    return found
