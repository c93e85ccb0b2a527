"""Read run folders into plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.report.log import LogLine, read_log
from sncl.runs.experiment import EXPERIMENT, decision, read_described
from sncl.runs.result import RESULT, Result, read_result
from sncl.training.log import LOG

Notify = Callable[[str], None]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: what was run, what came out, and what was written down on the way."""

    folder: Path
    experiment: dict[str, Any]
    result: Result
    losses: tuple[LogLine, ...] = ()
    evaluations: tuple[LogLine, ...] = ()

    def class_name(self, label: int) -> str:
        """What a class is called: by its name where it has one."""
        names = self.result.class_names or []
        return f"class {names[label] if label < len(names) else label}"

    def task_name(self, task: int) -> str:
        """The number of a task, with its name where it has one."""
        names = self.result.task_names or []
        return f"task {task + 1}" + (f": {names[task]}" if task < len(names) else "")


def read_runs(paths: Iterable[Path], note: Notify) -> list[FinishedRun]:
    """All finished runs in and below these folders, each once; what is left out is noted."""
    found: dict[tuple[str, str, int], FinishedRun] = {}
    notes = []
    for folder in dict.fromkeys(folder for path in paths for folder in run_folders(path)):
        if not (folder / RESULT).exists():
            notes.append(f"{shown(folder)} is not finished and left out")
            continue
        run = read_run(folder)
        first = found.setdefault((decision(run.experiment), run.result.manifest.data, run.result.seed), run)
        if first is not run:
            notes.append(f"{shown(folder)} is the same run as {shown(first.folder)} and left out")
    if not found:
        raise SnclError("none of these runs is finished; a finished one has a result.json")
    for text in notes:
        note(text)
    return list(found.values())


def shown(folder: Path) -> str:
    """The name of a folder as it can be printed, also where it is no UTF-8."""
    return folder.name.encode(errors="backslashreplace").decode()


def run_folders(path: Path) -> list[Path]:
    """The run folders in and below a folder."""
    if not path.is_dir():
        raise SnclError(f"there is no folder {path}; a report is about run folders or folders that hold them")
    folders = sorted({each.parent.resolve() for name in (EXPERIMENT, RESULT) for each in path.rglob(name)})
    if not folders:
        raise SnclError(f"{path} holds no runs; a run folder has an {EXPERIMENT}")
    return folders


def read_run(folder: Path) -> FinishedRun:
    """One finished run; an error that names the file where one is damaged."""
    experiment, result = read_described(folder), read_result(folder / RESULT)
    lines = list(read_log(folder / LOG))
    losses, evaluations = (
        tuple(line for line in lines if line.get("event") == event) for event in ("losses", "evaluation")
    )
    return FinishedRun(folder, experiment, result, losses, evaluations)
