"""The documentation site: what is generated has everything the code has, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import typer

import sncl
from sncl.cli.commands import app
from sncl.methods.table import METHODS
from sncl.streams.benchmarks import STREAMS

pytest.importorskip("mkdocs")
pytest.importorskip("griffe")
ROOT = Path(__file__).resolve().parents[1]
HOOKS = ROOT / "docs" / "hooks"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that says what the site is made of, loaded as MkDocs does it: its folder comes first."""
    monkeypatch.syspath_prepend(HOOKS)
    return import_module("pages")


def test_methods_streams_and_their_settings_are_listed(hook: ModuleType) -> None:
    page = hook.generated()["reference/benchmarks.md"]
    for name in (*METHODS, *STREAMS):
        assert f"| `{name}` |" in page
    for entry in METHODS.values():
        assert all(f"`{key}={value}`" in page for key, value in entry.settings.items())


def test_every_command_and_option_is_described(hook: ModuleType) -> None:
    page = hook.generated()["reference/commands.md"]
    for name, command in typer.main.get_command(app).commands.items():
        for child, below in (getattr(command, "commands", None) or {"": command}).items():
            section = page.split(f"\n## sncl {name} {child}".rstrip() + "\n")[1].split("\n## ")[0]
            assert all(option in section for each in below.params for option in each.opts if option.startswith("--"))


def test_every_public_name_is_in_the_reference(hook: ModuleType) -> None:
    page = hook.generated()["reference/sncl.md"]
    documented = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert sorted(documented) == sorted(".".join(sncl._PUBLIC[name]) for name in sncl.__all__)


def test_tables_survive_what_stands_in_their_cells(hook: ModuleType) -> None:
    written = import_module("written")
    assert written.table(["a", "b"], [["x|y", "two\nlines"]]) == "| a | b |\n| --- | --- |\n| x\\|y | two lines |"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ("<style>@import url(https://fonts.example/css)</style>", True),
        ("<img alt=x src=http://example/x.png>", True),
        ('<a href="https://example/">a link that is clicked</a>', False),
        ('<script src="../assets/x.js"></script><img src="data:image/png;base64,AA//">', False),
        ('<link rel="canonical" href="https://example/">', False),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_noticed(hook: ModuleType, text: str, found: bool) -> None:
    assert bool(hook.foreign(text)) is found


def test_a_link_that_leads_nowhere_is_noticed(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a b.html").write_text('<h1 id="here">A</h1><a href="../index.html#end">back</a>')
    (tmp_path / "404.html").write_text('<a href="/index.html">start</a>')
    good = '<a id="end"></a><a href="docs/a%20b.html#here">a</a><a href="#end">b</a><a href="https://x.example/">c</a>'
    page = tmp_path / "index.html"
    page.write_text(good)
    broken = import_module("links").broken
    assert broken(tmp_path) == []
    for planted in ("results/tune/x.jsonl", "docs/a%20b.html#gone", "#gone", "/docs/a%20b.html", "docs", "../../etc"):
        page.write_text(f'{good}<a href="{planted}">d</a>')
        (line,) = broken(tmp_path)
        assert line.startswith(f"index.html links to {planted}: ")
    page.write_text(f'{good}<img src="gone.png"/>')
    assert broken(tmp_path) == ["index.html links to gone.png: no such file"]


PLANTED = {
    "[a file](../results/tune/gone.jsonl)": "outside of the site",
    "[a file](tune/gone.jsonl)": "no such file",
    '<a href="index.html#gone">an anchor</a>': "no such anchor",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_broken_link_fails_the_build(
    hook: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture, planted: str
) -> None:
    """MkDocs builds a site of one page, with the check that the real one has."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    (tmp_path / "only.py").write_text("from pages import on_post_build\n")
    config = {"site_name": "planted", "hooks": [str(tmp_path / "only.py")], "plugins": [], "use_directory_urls": False}
    places = {"docs_dir": str(page.parent), "site_dir": str(tmp_path / "site")}
    (tmp_path / "mkdocs.yml").write_text(json.dumps(config | places))  # JSON is YAML
    for text, outcome in (("whole", nullcontext()), (planted, pytest.raises(Abort))):
        page.write_text(f"# A page\n\n{text}\n")
        with outcome:
            build(load_config(str(tmp_path / "mkdocs.yml"), theme={"name": "material", "font": False}))
    assert PLANTED[planted] in caplog.text


def test_docstrings_become_markdown(hook: ModuleType) -> None:
    as_markdown = import_module("docstrings").as_markdown
    assert as_markdown("See :class:`sncl.Learner` and :meth:`~grow`.") == "See `sncl.Learner` and `grow`."
    assert as_markdown("Words.\n\n>>> 1 + 1\n2\n\nMore.") == "Words.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [path for folder in ("docs", "results", "recipes") for path in (ROOT / folder).glob("*.md")]
    pages += [path.with_suffix(".md") for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= set(listed)


def test_links_lead_somewhere_in_the_repository_too() -> None:
    """The site has generated pages, which a reader of the repository has not."""
    pages = [path for folder in (".", "docs", "results", "recipes") for path in (ROOT / folder).glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"
