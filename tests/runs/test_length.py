"""A short run on a GPU is not compiled; which run is short follows from its command alone."""

from __future__ import annotations

from typing import Any

import pytest

from sncl.runs.build import make_stream
from sncl.runs.length import WORTH_COMPILING, planned_steps
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS
from sncl.training.schedule import total_steps


def engine_of(stream: str, **options: Any) -> str:
    return plan(stream, "er", device="cuda", elsewhere=True, **options).engine


@pytest.mark.parametrize("name", [name for name in STREAMS if name.endswith("digits")])
@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("tasks", [1, 2, None])
def test_steps_are_known_before_the_data_are_read(name: str, epochs: int, tasks: int | None) -> None:
    chosen = plan(name, "er", epochs=epochs, tasks=tasks, device="cpu")
    planned = planned_steps(STREAMS[name], chosen.tasks, epochs, chosen.settings)
    assert planned == pytest.approx(total_steps(make_stream(chosen, None), epochs), rel=0.15)


@pytest.mark.parametrize(
    ("stream", "options", "engine"),
    [
        ("seq-cifar10", {}, "graph"),
        ("perm-mnist", {}, "graph"),
        ("seq-tinyimagenet", {"epochs": 1}, "graph"),
        ("seq-digits", {}, "eager"),
        ("perm-mnist", {"tasks": 2}, "eager"),
        ("seq-cifar10", {"epochs": 1, "tasks": 2}, "eager"),
        ("seq-cifar10", {"epochs": 1, "settings": {"batch_size": "512"}}, "eager"),
        ("seq-digits", {"engine": "graph"}, "graph"),
        ("seq-cifar10", {"engine": "eager"}, "eager"),
    ],
)
def test_only_a_long_run_is_compiled_unless_asked_for(stream: str, options: dict[str, Any], engine: str) -> None:
    assert {engine_of(stream, seed=seed, **options) for seed in range(3)} == {engine}


def test_a_few_steps_more_make_a_run_long() -> None:
    made = {-(-20_000 // size): {"epochs": 1, "tasks": 2, "settings": {"batch_size": str(size)}} for size in (21, 20)}
    fewer, more = made
    assert fewer < WORTH_COMPILING["resnet18"] <= more
    assert [engine_of("seq-cifar10", **options) for options in made.values()] == ["eager", "graph"]
