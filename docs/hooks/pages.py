"""Which files make the site: those of the repository under their own paths, and pages generated from the code.

Paths on the site are those of the repository, so a link such as ``../results/table1.md`` works in both. Nothing is
copied: MkDocs reads each file where it lies. A page that would load anything from another host fails the build, and so
does a link that leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import api
import commands
import default_settings
import links
import notebook_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
SHOWN = (  # patterns below the root: pages, and what they link to
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "docs/*.md",
    "docs/*.png",
    "docs/images/*",
    "benchmarks/*.py",
    "examples/*.py",
    "notebooks/*.ipynb",
    "recipes/*.md",
    "results/*.md",
    "results/*.jsonl",
    "results/figures/*",
    "results/tune/*",
)
ASSETS = ("iframe-worker.js", "style.css")  # beside this file
LOADED = re.compile(  # what a browser fetches without being asked; a link that is clicked is none of it
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*?\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|(?:url\(|@import)\s*["']?(?:https?:)?//[^"')\s]+"""
)


def generated() -> dict[str, str | bytes]:
    """What is written by code, by path: the reference, and notebooks as pages with their pictures."""
    found: dict[str, str | bytes] = {
        "reference/benchmarks.md": default_settings.page(),
        "reference/commands.md": commands.page(),
        **api.pages(),
    }
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        found[f"notebooks/{path.stem}.md"], pictures = notebook_pages.page(path)
        found |= {f"notebooks/{name}": content for name, content in pictures.items()}
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the repository's files in the place of those of ``docs_dir``, beside those of the theme."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            kept.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    kept += [File.generated(config, path, content=text) for path, text in generated().items()]
    for name in ASSETS:
        kept.append(File.generated(config, f"assets/{name}", abs_src_path=str(Path(__file__).with_name(name))))
    return Files(kept)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Colour commands as a shell does (without a prompt in front, ``console`` takes them for output), and let links to
    notebooks lead to their pages."""
    return notebook_pages.links(markdown.replace("```console\n", "```sh\n"))


def foreign(text: str) -> list[str]:
    """What a page or a style sheet would load from another host."""
    return LOADED.findall(text)


def on_post_build(config: MkDocsConfig) -> None:
    """Read everything that was written; the site is for readers without a network too."""
    built = Path(config.site_dir)
    for path in sorted([*built.rglob("*.html"), *built.rglob("*.css")]):
        if found := foreign(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(built)} loads from another host: {found[0]}")
    if lines := links.broken(built):
        raise PluginError("\n".join(["links that lead nowhere:", *lines]))


def on_serve(server, config: MkDocsConfig, **_: object):  # type: ignore[no-untyped-def]  # its type is private
    """Build again when a page outside ``docs_dir`` or a docstring changes."""
    for place in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "results", "recipes", "notebooks", "sncl"):
        server.watch(str(ROOT / place))
    return server
