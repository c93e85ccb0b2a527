"""Finished runs in and below folders, by what their files say; no network is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sncl.errors import SnclError
from sncl.runs.experiment import EXPERIMENT, decision, read_described
from sncl.runs.result import RESULT, Result, read_result

Notify = Callable[[str], None]


class RunFiles(NamedTuple):
    """A finished run: where it lies, what was run and what came out."""

    folder: Path
    experiment: dict[str, Any]
    result: Result


def finished_runs(paths: Iterable[Path], note: Notify) -> list[RunFiles]:
    """All finished runs in and below these folders, each once; what is left out is noted."""
    found: dict[tuple[str, str, int], RunFiles] = {}
    notes = []
    for folder in dict.fromkeys(folder for path in paths for folder in run_folders(path)):
        if not (folder / RESULT).exists():
            notes.append(f"{shown(folder)} is not finished and left out")
            continue
        run = RunFiles(folder, read_described(folder), read_result(folder / RESULT))
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
        raise SnclError(f"there is no folder {path}; name run folders or folders that hold them")
    folders = sorted({each.parent.resolve() for name in (EXPERIMENT, RESULT) for each in path.rglob(name)})
    if not folders:
        raise SnclError(f"{path} holds no runs; a run folder has an {EXPERIMENT}")
    return folders
