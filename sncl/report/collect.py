"""Read run folders into plain data and put runs that differ in nothing but the seed together."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.runs.experiment import EXPERIMENT, RESULT, decision
from sncl.streams.benchmarks import STREAMS
from sncl.training.checkpoint import read_json
from sncl.training.log import LOG

Entry = dict[str, Any]
Note = Callable[[str], None]

KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("stream", "method"), str),
    **dict.fromkeys(("memory", "seed"), int),
    **dict.fromkeys(("accuracy", "measures", "manifest"), dict),
    **dict.fromkeys(("seconds", "memory_bytes_per_sample"), (int, float)),
    **dict.fromkeys(("forgetting", "active_fraction"), (int, float, type(None))),
}


@dataclass(frozen=True)
class Run:
    """A finished run: what was run, what came out, and what was written down on the way."""

    folder: Path
    experiment: Entry
    result: Entry
    losses: tuple[Entry, ...]
    evaluations: tuple[Entry, ...]

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def manifest(self) -> Entry:
        manifest: Entry = self.result["manifest"]
        return manifest

    def class_name(self, label: int) -> str:
        """What a class is called: by its name where it has one."""
        names = self.result.get("class_names")
        return f"class {names[label] if isinstance(names, list) and label < len(names) else label}"

    def task_name(self, task: int) -> str:
        """The number of a task, with its name where it has one."""
        names = self.result.get("task_names")
        return f"task {task + 1}" + (f": {names[task]}" if isinstance(names, list) and task < len(names) else "")

    def matrices(self) -> dict[str, list[list[float | None]]]:
        """Accuracy in percent by read-out, after each task and on each task."""
        return {readout: measure["accuracy_matrix"] for readout, measure in self.result["measures"].items()}


@dataclass(frozen=True)
class Group:
    """The runs that differ in nothing but the seed, under a title that no other group of the stream has."""

    stream: str
    method: str
    memory: int
    title: str
    runs: tuple[Run, ...]

    def name(self, run: Run) -> str:
        return f"{self.title}, seed {run.seed}"


def read_runs(paths: Iterable[Path], note: Note) -> list[Run]:
    """All finished runs in and below these folders, each once; what is left out is noted."""
    found: dict[tuple[str, int], Run] = {}
    notes = []
    for folder in dict.fromkeys(folder for path in paths for folder in run_folders(path)):
        if not (folder / RESULT).exists():
            notes.append(f"{folder.name} is not finished and left out")
            continue
        run = read_run(folder)
        first = found.setdefault((decision(run.experiment), run.seed), run)
        if first is not run:
            notes.append(f"{folder.name} is the same run as {first.folder.name} and left out")
    if not found:
        raise SnclError("none of these runs is finished; a finished one has a result.json")
    for text in notes:
        note(text)
    return list(found.values())


def run_folders(path: Path) -> list[Path]:
    """The run folders in and below a folder."""
    if not path.is_dir():
        raise SnclError(f"there is no folder {path}; RUNS are run folders or folders that hold them")
    folders = sorted({each.parent.resolve() for name in (EXPERIMENT, RESULT) for each in path.rglob(name)})
    if not folders:
        raise SnclError(f"{path} holds no runs; a run folder has an {EXPERIMENT} (see sncl train --out)")
    return folders


def read_run(folder: Path) -> Run:
    """One finished run; an error that names the file where one is damaged."""
    experiment, result = read_json(folder / EXPERIMENT), read_json(folder / RESULT)
    if not isinstance(experiment, dict) or not isinstance(experiment.get("settings"), dict):
        raise SnclError(f"{folder / EXPERIMENT} is damaged: it names no settings")
    check_result(folder / RESULT, result)
    lines = list(read_log(folder / LOG))
    return Run(
        folder,
        experiment,
        result,
        tuple(line for line in lines if line.get("event") == "losses"),
        tuple(line for line in lines if line.get("event") == "evaluation"),
    )


def check_result(path: Path, result: Any) -> None:
    """Refuse a result that lacks what every page shows."""
    if not isinstance(result, dict):
        raise SnclError(f"{path} is damaged: it holds no result")
    for key, kind in KINDS.items():
        if not isinstance(result.get(key), kind):
            raise SnclError(f"{path} is damaged: {key!r} is missing or of the wrong kind")
    for measure in result["measures"].values():
        matrix = measure.get("accuracy_matrix") if isinstance(measure, dict) else None
        if not isinstance(matrix, list) or not matrix or not all(is_row(row, len(matrix[0])) for row in matrix):
            raise SnclError(f"{path} is damaged: it holds no matrix of accuracies")


def is_row(row: Any, length: int) -> bool:
    return isinstance(row, list) and len(row) == length and all(each is None or is_number(each) for each in row)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def read_log(path: Path) -> Iterator[Entry]:
    """The lines of a log; none where there is no log."""
    if not path.exists():
        return
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} cannot be read ({error})") from error
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise SnclError(f"line {number} of {path} is damaged ({error})") from error
        try:
            sound = is_entry(line)
        except (AttributeError, KeyError, TypeError):
            sound = False
        if not sound:
            raise SnclError(f"line {number} of {path} is damaged: it is no entry of a log")
        yield line


def is_entry(line: Any) -> bool:
    """Whether a line of a log has the form that a run writes; older runs left out some of it."""
    if not isinstance(line, dict) or not is_number(line.get("step")):
        return False
    use = line.get("neuron_use", {"used": {}, "any": {}, "overlap": []})
    return (
        all(is_number(value) for value in line.get("losses", {}).values())
        and all(is_row(line[key], len(line[key])) for key in ("memory_by_class", "memory_by_task") if key in line)
        and all(is_row(pair, 2) for pair in line.get("open_neurons", {}).values())
        and all(is_row(part, len(part)) for part in (*use["used"].values(), list(use["any"].values()), *use["overlap"]))
    )


def group(runs: Sequence[Run]) -> list[Group]:
    """The runs by what decides them, in the order of `sncl list`: by stream, method and memory."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(decision(run.experiment), []).append(run)
    several = [tuple(sorted(members, key=lambda run: run.seed)) for members in found.values()]
    groups = [named(members, [other[0] for other in several]) for members in several]
    streams, methods = list(STREAMS), list(METHODS)
    return sorted(groups, key=lambda each: (place(each.stream, streams), place(each.method, methods), each.memory))


def place(name: str, known: Sequence[str]) -> tuple[int, str]:
    """Where a name comes in a list; unknown ones at the end, by the alphabet."""
    return known.index(name) if name in known else len(known), name


def named(members: tuple[Run, ...], others: Sequence[Run]) -> Group:
    """A group whose title says what sets it apart from those of the same stream and method, and no more."""
    run, words = members[0], []
    stream, method, memory = (run.result[key] for key in ("stream", "method", "memory"))
    rivals = [each for each in others if (each.result["stream"], each.result["method"]) == (stream, method)]
    for key, value in decisions(run).items():
        alike = [rival for rival in rivals if decisions(rival).get(key) == value]
        if len(alike) < len(rivals):
            words.append(f"{key.replace('_', ' ')} {value}")
            rivals = alike
    title = METHODS[method].title if method in METHODS else method
    return Group(stream, method, memory, ", ".join([title, *words]), members)


def decisions(run: Run) -> Entry:
    """What may set two groups of one method apart."""
    keys = ("memory", "epochs", "tasks", "validation", "protocol")
    user_data = run.experiment.get("user_data")
    data = {"data": str(user_data.get("fingerprint"))[:8]} if isinstance(user_data, dict) else {}
    return {**{key: run.experiment.get(key) for key in keys}, **run.experiment["settings"], **data}


def mixtures(groups: Sequence[Group]) -> list[str]:
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
            values = list(dict.fromkeys(str(run.manifest.get(key)) for run in runs))
            if len(values) > 1:
                shown = ", ".join(value[:12] for value in values)
                warnings.append(f"{stream}: runs of different {title} are mixed: {shown}")
    return warnings
