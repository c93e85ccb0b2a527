"""Runs side by side: which belong together, what they are called, mean and deviation over their seeds."""

from typing import Any

import pytest

from sncl.analysis.groups import by_seed
from sncl.errors import SnclError


def made(method: str, seed: int, value: Any, stream: str = "rot-mnist", memory: int = 200, **settings: Any) -> Any:
    experiment = {"stream": stream, "method": method, "memory": memory, "settings": settings}
    return {"run": f"{method}/{seed}", "stream": stream, "method": method, "seed": seed, "experiment": experiment} | {
        "measures": value
    }


def test_seeds_are_averaged_wherever_numbers_lie() -> None:
    first, second = {"a": 1.0, "b": [1, {"c": None}], "d": 7}, {"a": 3.0, "b": [2, {"c": 4.0}, 9]}
    (found,) = by_seed([made("er", 0, first), made("er", 1, second)])
    assert found.as_json() == {
        "title": "ER",
        "seeds": [0, 1],
        "summary": {
            "a": {"mean": 2.0, "std": pytest.approx(2**0.5)},
            "b": [{"mean": 1.5, "std": pytest.approx(0.5**0.5)}, {"c": {"mean": 4.0, "std": 0.0}}],
        },
    }


def test_titles_say_what_differs() -> None:
    runs = [made("er", 0, {}, lr=0.1), made("er", 0, {}, lr=0.2), made("er", 0, {}, lr=0.1, memory=500)]
    titles = [each.title for each in by_seed([*runs, made("derpp", 0, {}, lr=0.3)])]
    assert titles == ["ER memory=200 lr=0.1", "ER memory=200 lr=0.2", "ER memory=500 lr=0.1", "DER++"]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(SnclError, match="er/0 and er/0 are the same experiment"):
        by_seed([made("er", 0, {}), made("er", 1, {}), made("er", 0, {})])
    with pytest.raises(SnclError, match="different streams"):
        by_seed([made("er", 0, {}), made("er", 0, {}, stream="perm-mnist")])
