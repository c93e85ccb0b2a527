r"""Whether a network that keeps neurons in reserve learns later tasks better.

Runs with gates beside the same runs without, seed by seed: A[k][k], the accuracy on task k right after learning it, and
the paired difference. What is forgotten later does not count here. Everything is read from ``result.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sncl.analysis.groups import AnalysisGroup, by_seed
from sncl.errors import SnclError
from sncl.evaluation.metrics import Matrix, Row, mean_of_known
from sncl.methods.table import entry
from sncl.runs.experiment import deciding
from sncl.runs.folders import Notify, RunFiles, finished_runs, shown
from sncl.runs.result import TaskAccuracies

GATES, OFF = "gates", "off"


def capacity(paths: Iterable[Path], note: Notify) -> list[AnalysisGroup]:
    """The pairs of runs in and below these folders that differ in nothing but gates; the others are noted."""
    runs = finished_runs(paths, note)
    without = {apart_from_gates(run): run for run in runs if gates_of(run) == OFF}
    gated = [run for run in runs if gates_of(run) not in (None, OFF)]
    pairs = [(run, without[apart_from_gates(run)]) for run in gated if apart_from_gates(run) in without]
    if not pairs:
        raise SnclError(
            "no two of these runs differ in nothing but their gates: a run with gates needs one of the same seed, "
            "settings and data with gates=off"
        )
    found = by_seed([compared(*pair) for pair in pairs])
    used = {run.folder for pair in pairs for run in pair}
    if alone := [shown(run.folder) for run in runs if run.folder not in used]:
        note(f"left out, since no run differs from them in nothing but its gates: {', '.join(alone)}")
    return found


def gates_of(run: RunFiles) -> Any:
    """How a run trains its gates; None where its method knows none."""
    return run.experiment["settings"].get(GATES)


def apart_from_gates(run: RunFiles) -> str:
    """All that decides a run, seed and data included, but its gates: the same for the two runs of a pair."""
    known = entry(run.experiment["method"])
    names = {GATES, *known.gone, *(name for settings in known.choices.get(GATES, {}).values() for name in settings)}
    facts = deciding(run.experiment)
    settings = {key: value for key, value in facts["settings"].items() if key not in names}
    return json.dumps([facts | {"settings": settings}, run.result.seed, run.result.manifest.data], sort_keys=True)


def compared(gated: RunFiles, plain: RunFiles) -> dict[str, Any]:
    """The two runs of a pair, task by task."""
    readouts = [readout for readout in gated.result.measures if readout in plain.result.measures]
    return {
        "run": str(gated.folder),
        "without_gates": str(plain.folder),
        **{key: getattr(gated.result, key) for key in ("stream", "method", "memory", "seed")},
        "experiment": deciding(gated.experiment),
        "measures": {
            "open": [100 * part for part in gated.result.open_by_task or []],
            "readouts": {readout: by_task(gated, plain, readout) for readout in readouts},
        },
    }


def by_task(gated: RunFiles, plain: RunFiles, readout: str) -> dict[str, Any]:
    """Accuracy right after learning each task, its difference, and that over the first and second half of the tasks."""
    ours, theirs = (right_after(run, readout) for run in (gated, plain))
    if len(ours) != len(theirs):
        raise SnclError(f"{gated.folder} has {len(ours)} tasks and {plain.folder} {len(theirs)}; pairs have as many")
    gains = [None if a is None or b is None else a - b for a, b in zip(ours, theirs, strict=True)]
    first, second = (mean_of_known(part) for part in halves(gains))
    return {
        "with_gates": ours,
        "without_gates": theirs,
        "difference": gains,
        "first_half": first,
        "second_half": second,
        "growth": None if first is None or second is None else second - first,
    }


def right_after(run: RunFiles, readout: str) -> TaskAccuracies:
    """The diagonal of the accuracy matrix; a run that was tested once has none."""
    matrix: Matrix = run.result.measures[readout].accuracy_matrix
    if not 1 < len(matrix) <= len(matrix[0]):
        raise SnclError(
            f"{run.folder} was not tested after each of several tasks, so how well it learned them is not known"
        )
    return [row[task] for task, row in enumerate(matrix)]


def halves(values: Sequence[float | None]) -> tuple[Row, Row]:
    """The first half and the rest, in which the task in the middle is."""
    middle = len(values) // 2
    return values[:middle], values[middle:]
