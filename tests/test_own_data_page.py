"""The page on one's own data does what it says: its code and commands, from top to bottom, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import Sncl

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own_data.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(sncl: Sncl, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("plotly")
    commands = 0
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        for line in text.splitlines():
            name, *arguments = shlex.split(line)
            assert name == "sncl"
            done = sncl(*arguments)
            assert done.code == 0, f"{line}\n{done.err}"
            commands += 1
    assert commands >= 10
    assert (tmp_path / "report.html").is_file()
