"""Put runs that differ in nothing but the seed together, under titles that say what sets them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sncl.methods.table import METHODS
from sncl.report.collect import FinishedRun
from sncl.runs.experiment import decision
from sncl.streams.benchmarks import STREAMS


@dataclass(frozen=True)
class RunGroup:
    """The runs that differ in nothing but the seed, under a title that no other group of the stream has."""

    stream: str
    method: str
    memory: int
    title: str
    runs: tuple[FinishedRun, ...]

    def name(self, run: FinishedRun) -> str:
        return f"{self.title}, seed {run.result.seed}"

    @property
    def first_folder(self) -> str:
        """Where the first seed lies, whose checkpoint is shown."""
        return str(self.runs[0].folder)


def group_runs(runs: Sequence[FinishedRun]) -> list[RunGroup]:
    """The runs by what decides them, in the order of `sncl list`: by stream, method and memory."""
    found: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        found.setdefault((decision(run.experiment), run.result.manifest.data), []).append(run)
    several = [tuple(sorted(members, key=lambda run: run.result.seed)) for members in found.values()]
    groups = [titled_group(members, [other[0] for other in several]) for members in several]
    streams, methods = list(STREAMS), list(METHODS)
    return sorted(groups, key=lambda each: (place(each.stream, streams), place(each.method, methods), each.memory))


def place(name: str, known: Sequence[str]) -> tuple[int, str]:
    """Where a name comes in a list; unknown ones at the end, by the alphabet."""
    return known.index(name) if name in known else len(known), name


def titled_group(members: tuple[FinishedRun, ...], others: Sequence[FinishedRun]) -> RunGroup:
    """A group whose title says what sets it apart from those of the same stream and method, and no more."""
    first, words = members[0].result, []
    rivals = [each for each in others if (each.result.stream, each.result.method) == (first.stream, first.method)]
    for key, value in decisions(members[0]).items():
        alike = [rival for rival in rivals if decisions(rival).get(key) == value]
        if len(alike) < len(rivals):
            words.append(f"{key.replace('_', ' ')} {value}")
            rivals = alike
    title = METHODS[first.method].title if first.method in METHODS else first.method
    return RunGroup(first.stream, first.method, first.memory, ", ".join([title, *words]), members)


def decisions(run: FinishedRun) -> dict[str, Any]:
    """What may set two groups of one method apart."""
    keys = ("memory", "epochs", "tasks", "validation", "protocol")
    data = {"data": run.result.manifest.data[:8]}
    return {**{key: run.experiment.get(key) for key in keys}, **run.experiment["settings"], **data}


def mixtures(groups: Sequence[RunGroup]) -> list[str]:
    """In words, what runs of one stream were not made under the same conditions: they are not to be compared."""
    asked = {
        "protocol": "protocols",
        "validation": "validation parts",
        "epochs": "numbers of epochs",
        "tasks": "numbers of tasks",
        "data": "data (their fingerprints differ)",
    }
    warnings = []
    for stream in dict.fromkeys(each.stream for each in groups):
        runs = [run for each in groups if each.stream == stream for run in each.runs]
        for key, title in asked.items():
            values = list(dict.fromkeys(str(getattr(run.result.manifest, key)) for run in runs))
            if len(values) > 1:
                shown = ", ".join(value[:12] for value in values)
                warnings.append(f"{stream}: runs of different {title} are mixed: {shown}")
    return warnings
