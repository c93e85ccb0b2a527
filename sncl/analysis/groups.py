"""Analyses of several runs side by side: those that differ in nothing but the seed are one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sncl.errors import SnclError
from sncl.methods.table import method_title
from sncl.runs.experiment import deciding, decision
from sncl.runs.loading import Trained
from sncl.runs.summary import mean_std


@dataclass(frozen=True)
class AnalysisGroup:
    """Runs that differ in nothing but the seed; ``summary`` has mean and standard deviation of every measure."""

    title: str
    runs: tuple[dict[str, Any], ...]
    summary: Any

    def as_json(self) -> dict[str, Any]:
        return {"title": self.title, "seeds": [run["seed"] for run in self.runs], "summary": self.summary}


def analysed(run: Trained, found: dict[str, Any]) -> dict[str, Any]:
    """What an analysis found, with the run it is about."""
    experiment = run.experiment
    ours = {key: getattr(experiment, key) for key in ("stream", "method", "memory", "seed")}
    accuracy, identity = run.result.accuracy, deciding(experiment.identity())
    return {"run": str(run.folder), **ours, "accuracy": accuracy, "experiment": identity, **found}


def by_seed(runs: Sequence[dict[str, Any]]) -> list[AnalysisGroup]:
    """The runs by experiment, in the order they come.

    A seed twice is an error, since it would count twice, and so are several streams, which cannot be compared.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run["stream"] != runs[0]["stream"]:
            raise SnclError(f"{runs[0]['run']} and {run['run']} are of different streams; analyse one stream at a time")
        members = found.setdefault(decision(run["experiment"]), [])
        for other in members:
            if other["seed"] == run["seed"]:
                raise SnclError(f"{other['run']} and {run['run']} are the same experiment with the same seed")
        members.append(run)
    titles = distinct([members[0]["experiment"] for members in found.values()])
    return [
        AnalysisGroup(title, tuple(members), over_seeds([run["measures"] for run in members]))
        for title, members in zip(titles, found.values(), strict=True)
    ]


def distinct(experiments: Sequence[dict[str, Any]]) -> list[str]:
    """A title for each experiment: its method, and whatever else they differ in."""
    flat = [{**each, **each["settings"], "settings": None} for each in experiments]
    titles = []
    for ours in flat:
        same = [other for other in flat if other["method"] == ours["method"]]
        keys = [key for key in ours if len({str(other.get(key)) for other in same}) > 1]
        title = method_title(ours["method"])
        titles.append(" ".join([title, *(f"{key}={ours[key]}" for key in keys)]))
    return titles


def over_seeds(values: Sequence[Any]) -> Any:
    """Mean and standard deviation of numbers that lie at the same place of lists and dictionaries."""
    first = values[0]
    if isinstance(first, dict):
        common = [key for key in first if all(key in value for value in values)]
        return {key: over_seeds([value[key] for value in values]) for key in common}
    if isinstance(first, list):
        return [over_seeds(list(parts)) for parts in zip(*values, strict=False)]
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean, deviation = mean_std(known)
    return {"mean": mean, "std": deviation}
