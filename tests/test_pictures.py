"""The pictures of the page on concepts are what their script draws, and the page says the numbers they show."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from sncl.evaluation.metrics import average, backward_transfer, forgetting
from sncl.runs.summary import READOUT_TITLES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
NUMBERS: dict[str, Any] = json.loads((ROOT / "docs" / "pictures" / "numbers.json").read_text(encoding="utf-8"))


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs" / "pictures")
    return import_module("draw")


def test_pictures_are_those_of_the_script(draw: ModuleType) -> None:
    for name, text in draw.pictures().items():
        ElementTree.fromstring(text)
        assert (draw.IMAGES / name).read_text(encoding="utf-8") == text, "run `python docs/pictures/draw.py`"
        assert re.search(rf"!\[[^]]{{40,}}\]\(images/{name}\)", PAGE), f"{name} is on the page, described"


def test_the_page_names_the_commands_of_its_curves() -> None:
    for part in (*NUMBERS["forgetting"].values(), NUMBERS["memory"], NUMBERS["gates"]):
        assert f"\n{part['command']}\n" in PAGE


@pytest.mark.parametrize(("name", "title"), [("sgd", "SGD"), ("er", "ER"), ("sncl", "SNCL")])
def test_the_table_has_the_numbers_of_the_runs(name: str, title: str) -> None:
    run = NUMBERS["forgetting"][name]
    final = [average(matrix) for matrix in run["matrices"]]
    told = re.search(rf"^\| {title} \| (\S+) ± (\S+) \| (\S+) ± (\S+) \|$", PAGE, re.MULTILINE)
    assert told
    expected = (mean(final), stdev(final), mean(run["task_il"]), stdev(run["task_il"]))
    assert [float(number) for number in told.groups()] == pytest.approx(expected, abs=0.011)  # of rounded ones


def test_the_matrix_and_its_measures_are_those_of_the_run() -> None:
    matrix = NUMBERS["forgetting"]["er"]["matrices"][0]
    rows = re.findall(r"^\| \d \d \|(.*)\|$", PAGE, re.MULTILINE)
    assert [[float(cell) if cell.strip() else None for cell in row.split("|")] for row in rows] == matrix
    for value in (average(matrix), forgetting(matrix), backward_transfer(matrix)):
        assert f"| {value:.2f} |" in PAGE


def test_the_glossary_is_in_order_and_has_the_words_of_results() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.split("## Glossary")[1], re.MULTILINE)[2:]
    words = [word.casefold() for word in rows]
    assert words == sorted(set(words))
    told = {each for word in words for each in word.split(", ")}
    columns = {"stream", "method", "memory", "seed", "forgetting", "open fraction", "accuracy matrix", "bwt", "fwt"}
    assert columns | {title.casefold() for title in READOUT_TITLES.values()} <= told
