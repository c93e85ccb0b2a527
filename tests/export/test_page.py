"""The code of docs/smaller.md runs from top to bottom."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "smaller.md"


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), space)
    printed = capsys.readouterr().out
    before, after = (int(number) for number in re.findall(r"(\d+) parameters", printed))
    assert after < 0.6 * before and "of 100 neurons are open" in printed
