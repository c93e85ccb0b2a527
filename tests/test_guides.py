"""The guides run from top to bottom, each in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("any_network", ["['picture.2']", "['features/picture.2']", "['hidden', 'head:input']"]),
        ("live_streams", ["3 8 ", "25 60"]),
    ],
)
def test_a_guide_does_what_it_says(
    name: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": name}
    before = torch.get_rng_state()
    for block in BLOCKS.findall((DOCS / f"{name}.md").read_text()):
        exec(compile(block, f"{name}.md", "exec"), namespace)
    torch.set_rng_state(before)
    output = capsys.readouterr().out
    assert all(line in output for line in said)
