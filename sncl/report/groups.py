"""Put runs that differ in nothing but the seed together, under titles that say what sets them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sncl.methods.table import METHODS, method_title
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

    def collapses(self) -> list[str]:
        """In words, which tasks the runs that collapsed did not learn."""
        found = {run.result.seed: [each.task for each in run.result.collapsed or []] for run in self.runs}
        return [f"seed {seed} did not learn {task_words(tasks)}" for seed, tasks in found.items() if tasks]

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
    titles = distinct_titles([members[0] for members in several])
    groups = [titled_group(members, title) for members, title in zip(several, titles, strict=True)]
    streams, methods = list(STREAMS), list(METHODS)
    return sorted(groups, key=lambda each: (place(each.stream, streams), place(each.method, methods), each.memory))


def titled_group(members: tuple[FinishedRun, ...], title: str) -> RunGroup:
    first = members[0].result
    return RunGroup(first.stream, first.method, first.memory, title, members)


def place(name: str, known: Sequence[str]) -> tuple[int, str]:
    """Where a name comes in a list; unknown ones at the end, by the alphabet."""
    return known.index(name) if name in known else len(known), name


def distinct_titles(runs: Sequence[FinishedRun]) -> list[str]:
    """A title for each run, which says what sets it apart from those of the same stream and method, and no more."""
    facts = [decisions(run) for run in runs]
    alike: dict[Any, set[int]] = {}  # the runs of a stream and method, and those of them with a certain value
    for number, (run, ours) in enumerate(zip(runs, facts, strict=True)):
        same = (run.result.stream, run.result.method)
        for shared in (same, *((same, *item) for item in ours.items())):
            alike.setdefault(shared, set()).add(number)
    titles = []
    for run, ours in zip(runs, facts, strict=True):
        same = (run.result.stream, run.result.method)
        rivals, words = alike[same], []
        for key, value in ours.items():
            others = alike[same, key, value]
            if len(others) < len(alike[same]) and not rivals <= others:
                words.append(f"{key.replace('_', ' ')} {value}")
                rivals = rivals & others
        titles.append(", ".join([method_title(run.result.method), *words]))
    return titles


def decisions(run: FinishedRun) -> dict[str, Any]:
    """What may set two groups of one method apart."""
    keys = ("memory", "epochs", "tasks", "validation", "protocol")
    data = {"data": run.result.manifest.data[:8]}
    return {**{key: run.experiment.get(key) for key in keys}, **run.experiment["settings"], **data}


def task_words(tasks: Sequence[int]) -> str:
    """Their numbers, those in a row as the first and the last.

    >>> task_words([2]), task_words([1, 3, 4, 5])
    ('task 2', 'tasks 1, 3–5')
    """
    rows: list[list[int]] = []
    for task in tasks:
        if rows and task == rows[-1][-1] + 1:
            rows[-1].append(task)
        else:
            rows.append([task])
    words = ", ".join(f"{row[0]}–{row[-1]}" if len(row) > 1 else f"{row[0]}" for row in rows)
    return f"task{'s' if len(tasks) > 1 else ''} {words}"


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
