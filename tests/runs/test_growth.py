"""How the files of a run grow with the number of its tasks: by bytes, which are the same everywhere."""

import json
from pathlib import Path
from typing import NamedTuple

from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT, read_result
from sncl.training.checkpoint import read_json, write_json
from sncl.training.log import LOG


class Sizes(NamedTuple):
    log: int
    result: int


def sizes(folder: Path, method: str, tasks: int) -> Sizes:
    """Bytes after a run of so many tasks."""
    settings = {"batch_size": "256"}
    place = folder / f"{method}-{tasks}"
    perform(plan("perm-digits", method, memory=20, tasks=tasks, epochs=1, device="cpu", settings=settings), place)
    return Sizes((place / LOG).stat().st_size, (place / RESULT).stat().st_size)


def extrapolated(few: int, many: int, tasks: int, wanted: int) -> float:
    """Bytes for ``wanted`` tasks, by the square and the multiple that fit ``few`` at half and ``many`` at all tasks."""
    square = 2 * (many - 2 * few) / tasks**2
    return square * wanted**2 + (many - square * tasks**2) / tasks * wanted


def test_without_gates(tmp_path: Path) -> None:
    """The accuracy of every task after every task is a square by nature, and kept twice in the result."""
    tens = {tasks: sizes(tmp_path, "er", tasks) for tasks in (20, 40, 80)}
    assert tens[80].log < 6 * tens[20].log
    log = extrapolated(tens[40].log, tens[80].log, 80, 1000)
    result = extrapolated(tens[40].result, tens[80].result, 80, 1000)
    assert log < 5e6
    assert log + result < 30e6  # accuracies have up to 17 digits here; 20 MB are enough where five say all


def test_with_gates(tmp_path: Path) -> None:
    few, many = (sizes(tmp_path, "sncl", tasks) for tasks in (10, 40))
    assert many.log < 8 * few.log


def test_rows_of_numbers_are_one_line_and_nothing_else_is_changed(tmp_path: Path) -> None:
    matrix = [[1.5, None], [2, -1e-9]]
    others = {"a": [], "b": ["[\n1\n]", "x"], "c": [[], [{"d": [1]}]], "e": 3}
    for value in (others, matrix):
        write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == value
    assert (tmp_path / "a.json").read_text() == "[\n  [1.5,null],\n  [2,-1e-09]\n]\n"


def test_a_result_as_it_was_written_before_is_read(tmp_path: Path) -> None:
    sizes(tmp_path, "er", 2)
    path = tmp_path / "er-2" / RESULT
    found = read_result(path)
    path.write_text(json.dumps(read_json(path), indent=2))
    assert read_result(path) == found
