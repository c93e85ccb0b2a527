"""``sncl bench`` says what it promises; how fast this machine is, no test asks."""

from __future__ import annotations

import pytest
import torch
from command_line import Sncl

from sncl.bench import single, subjects, suite
from sncl.errors import SnclError
from sncl.memory.admission import Reservoir
from sncl.memory.memory import Memory

KEYS = ["device", "stream", "method", "memory", "runs", "ms_per_step", "bound_ms", "ratio", "images_per_s", "peak_mb"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One method, few images and one round. A worker of several runs is a process of its own and has them all."""
    shapes = {"perm-mnist": ((1, 28, 28), 600, 100, 10)}
    monkeypatch.setattr(suite, "MEASURED_METHODS", ("derpp",))
    monkeypatch.setattr(suite, "MEMORIES", (20, 150))
    monkeypatch.setattr(suite, "RUNS", (1, 2))
    monkeypatch.setattr(suite, "SHAPES", shapes)
    monkeypatch.setattr(subjects, "SHAPES", shapes)
    monkeypatch.setattr(single, "TIMINGS", 1)


def test_the_json_has_a_row_for_every_memory_and_number_of_runs(small: None, sncl: Sncl) -> None:
    result = sncl("bench", "--device", "cpu", "--stream", "perm-mnist", "--json").json()
    assert [list(row) for row in result["rows"]] == [KEYS] * 3
    assert [(row["memory"], row["runs"]) for row in result["rows"]] == [(20, 1), (150, 1), (20, 2)]
    for row in result["rows"]:
        assert (row["device"], row["stream"], row["method"]) == ("cpu", "perm-mnist", "derpp")
        assert row["ratio"] == pytest.approx(row["ms_per_step"] / row["bound_ms"])
        assert row["peak_mb"] > 0
    for row, images in zip(result["rows"], (128 + 20 + 20, 128 + 128 + 128, 128 + 20 + 20), strict=True):
        assert row["images_per_s"] == pytest.approx(1000 * images / row["ms_per_step"])
    (outside,) = result["outside"]
    parts = sum(outside[name] for name in ("evaluation_s", "checkpoints_s", "logging_s"))
    assert outside["percent"] == pytest.approx(100 * parts / (parts + outside["steps_s"]))


def test_the_table_is_for_people(small: None, monkeypatch: pytest.MonkeyPatch, sncl: Sncl) -> None:
    monkeypatch.setattr(suite, "RUNS", (1,))
    printed = sncl("bench", "--device", "cpu").out
    assert all(heading in printed for heading in ("ms a step", "bound, ms", "images/s", "peak MB", "outside steps"))


def test_a_stream_of_unknown_shape_is_refused() -> None:
    with pytest.raises(SnclError, match="bench knows the shapes of perm-mnist and seq-cifar10, not of 'rot-mnist'"):
        suite.bench("cpu", ("rot-mnist",))


def test_a_method_that_is_not_measured_is_refused() -> None:
    with pytest.raises(SnclError, match="bench measures er, derpp, sncl, not 'gem'"):
        suite.bench("cpu", methods=("gem",))


def test_a_filled_memory_is_full_and_in_mid_stream() -> None:
    memory = Memory(7, Reservoir())
    memory.admit({"x": torch.tensor([1, 2, 3])}, torch.rand(3, 3, dtype=torch.float64))
    subjects.fill(memory, seen=1000)
    assert memory.content()["x"].tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert memory.count.seen == 1000
