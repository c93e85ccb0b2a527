"""Read run folders into plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sncl.report.log import LogLine, read_log
from sncl.runs.folders import Notify, RunFiles, finished_runs
from sncl.runs.result import Result
from sncl.training.log import LOG


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
    """All finished runs in and below these folders, each once, with their logs; what is left out is noted."""
    return [with_log(run) for run in finished_runs(paths, note)]


def with_log(run: RunFiles) -> FinishedRun:
    """One finished run and its log; an error that names the file where it is damaged."""
    lines = list(read_log(run.folder / LOG))
    losses, evaluations = (
        tuple(line for line in lines if line.get("event") == event) for event in ("losses", "evaluation")
    )
    return FinishedRun(*run, losses, evaluations)
