"""Measured tables and sentences in Markdown pages, between two comments that stay."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def rewrite(page: str, name: str, text: str) -> None:
    """Put ``text`` between ``<!-- name -->`` and ``<!-- /name -->`` of a page."""
    path = ROOT / page
    before, begin, rest = path.read_text("utf-8").partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise SystemExit(f"{page} has no place for {name}")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", "utf-8")


def table(headings: list[str], rows: list[list[str]], left: int) -> str:
    """A table whose first ``left`` columns are texts."""
    rule = ["---"] * left + ["---:"] * (len(headings) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rule, *rows))
