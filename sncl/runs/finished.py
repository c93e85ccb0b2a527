"""Whether an experiment is finished in a folder, by its files. No torch is loaded: a finished run is shown at once."""

from __future__ import annotations

import json
from pathlib import Path

from sncl.errors import SnclError
from sncl.runs.data import refuse_changed_data, refuse_other_data
from sncl.runs.experiment import EXPERIMENT, PLACE, PROTOCOL, Experiment, read_described, refuse_gone
from sncl.runs.result import RESULT, WRITTEN_AGAIN, Result, read_result
from sncl.training.folder import CHECKPOINT, DATA, same_experiment, same_settings


def finished_result(experiment: Experiment, folder: Path, data: Path | None = None) -> Result | None:
    """The same as :func:`stored_result`; an error also if the data found here are not those it was made with."""
    result = stored_result(experiment, folder)
    if result is not None:
        refuse_other_data(experiment, folder, result, data)
    return result


def stored_result(experiment: Experiment, folder: Path) -> Result | None:
    """The result in ``folder`` if this experiment is finished there; an error if another one lies there."""
    if not (folder / EXPERIMENT).exists():
        for name in (CHECKPOINT, RESULT):
            if (folder / name).exists():
                raise SnclError(f"{folder} holds a {name} but no {EXPERIMENT} to say of what; choose another `out`")
        return None
    stored, ours = read_described(folder), json.loads(json.dumps(experiment.identity()))
    stored = {key: value for key, value in stored.items() if key not in PLACE}
    if not same_experiment(stored, ours):
        refuse_gone(folder, stored)
        refuse_changed_data(folder, stored, ours)
        raise SnclError(f"{folder} holds another experiment; choose another `out` or the settings it was made with")
    if not (folder / RESULT).exists():
        return None
    result = read_result(folder / RESULT)
    if not is_about(result, experiment) or stored.get(DATA, result.manifest.data) != result.manifest.data:
        raise SnclError(f"{folder / RESULT} is damaged: it is about another run; {WRITTEN_AGAIN}")
    return result


def is_about(result: Result, experiment: Experiment) -> bool:
    """Whether a result is that of this experiment, as far as it says what it is a result of."""
    names = ("stream", "method", "memory", "seed")
    conditions = ("threads", "precision", "engine", "epochs", "tasks", "validation")
    return (
        all(getattr(result, key) == getattr(experiment, key) for key in names)
        and all(getattr(result.manifest, key) == getattr(experiment, key) for key in conditions)
        and same_settings(result.manifest.settings, experiment.settings)
        and result.manifest.protocol == PROTOCOL
        and experiment.data in (None, result.manifest.data)
    )
