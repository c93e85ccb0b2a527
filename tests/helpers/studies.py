"""A short search, as an object and as a command: asked by the tests of tuning."""

from __future__ import annotations

from typing import Any

from sncl.tuning.search import Search, plan_search

SHORT = ["tune", "--stream", "seq-digits", "--method", "derpp", "--memory", "30", "--tasks", "1", "--epochs", "1"]
SHORT += ["--seeds", "1", "--workers", "1", "--device", "cpu", "--storage", "study.journal"]


def short(**changes: Any) -> Search:
    options = {"memory": 30, "tasks": 1, "epochs": 1, "seeds": 1, "device": "cpu"} | changes
    return plan_search("seq-digits", options.pop("method", "derpp"), **options)


def states(trials: list[dict[str, Any]]) -> list[str]:
    return [trial["state"] for trial in trials]
