"""Every notebook runs from top to bottom in a fresh kernel and folder, and shows what it gives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

for package in ("nbclient", "ipykernel", "pandas", "matplotlib", "transformers", "fastapi", "uvicorn"):
    if find_spec(package) is None:  # a kernel loads them
        pytest.skip(f"needs {package}", allow_module_level=True)
ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HOW = "run `python notebooks/execute.py`"


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def shape(outputs: list[dict[str, Any]]) -> list[str]:
    """What a reader sees, without what differs between runs: numbers, ids, layout, the dots of pictures."""
    found = []
    for made in outputs:
        data = made.get("data", {})
        text = "".join(made.get("text", "") or data.get("text/plain", ""))
        words = [word for part in text.split() if not re.search(r"\d", part) for word in re.findall(r"[A-Za-z]+", part)]
        found.append(" ".join([made["output_type"], *sorted(data), *words]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_gives(path: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, str(ROOT / "notebooks" / "execute.py"), str(path), "--out", str(tmp_path)]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    for stored, fresh in zip(cells(path, "code"), cells(tmp_path / path.name, "code"), strict=True):
        assert shape(stored["outputs"]) == shape(fresh["outputs"]), f"{''.join(stored['source'])}\n\n{HOW}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_is_small_and_whole(path: Path) -> None:
    assert path.stat().st_size < 150_000
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), HOW
    assert any(cell["outputs"] for cell in code)
    for made in (made for cell in code for made in cell["outputs"]):
        assert made["output_type"] != "error"
        assert made.get("name") != "stderr"
        assert str(ROOT) not in json.dumps(made)


def test_a_notebook_becomes_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["```\n", "said\n"]},
        {"output_type": "display_data", "data": {"image/png": "iVBORw==", "text/plain": "<Figure>"}},
        {
            "output_type": "execute_result",
            "data": {"text/html": '<style scoped>x</style>\n<table border="1" class="dataframe">\n\n<tr></tr></table>'},
        },
    ]
    written = [
        {"cell_type": "markdown", "source": ["# A title\n", "\n", "Words."]},
        {"cell_type": "code", "source": "x = 1", "outputs": outputs, "metadata": {"alt": "a curve"}},
    ]
    (tmp_path / "some.ipynb").write_text(json.dumps({"cells": written}))
    text, pictures = import_module("notebook_pages").page(tmp_path / "some.ipynb")
    assert text.startswith("# A title\n\n*A notebook")
    assert "\n\nWords.\n\n```python\nx = 1\n```\n\n" in text
    assert "``````{ .text .output }\n```\nsaid\n``````" in text
    assert "![a curve](some-1.png){ .output }" in text
    assert '<div class="output">\n<table>\n<tr></tr></table>\n</div>' in text
    assert pictures == {"some-1.png": b"\x89PNG"}


def test_links_of_notebooks_lead_somewhere() -> None:
    for path in NOTEBOOKS:
        for target in re.findall(
            r"\]\(([^)#\s]+)", "\n".join("".join(each["source"]) for each in cells(path, "markdown"))
        ):
            assert "://" in target or (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_parts_of_a_run_that_is_compared() -> None:
    """Other digits are the same to a reader, other words are not."""
    one, two = ({"output_type": "stream", "text": f"accuracy {number} %\n"} for number in ("9.5", "[ 91.25 ± 0.3]"))
    assert shape([one]) == shape([two])
    assert shape([one]) != shape([{"output_type": "stream", "text": "accuracies 9.5 %"}])
