"""What lies in the folder of a run, and whether it is of the same experiment; all of it known without torch."""

from __future__ import annotations

from typing import Any

CHECKPOINT = "checkpoint.safetensors"
BOARD = "tensorboard"
TASK_NETWORK = "task-{:02d}.safetensors"  # the network after a task, counted from 1
CHECKPOINT_SECONDS = 30.0  # between two checkpoints, unless told otherwise
SETTINGS = "settings"
DATA = "data"  # in the identity of an experiment: the fingerprint of a benchmark's data
WITHOUT_EFFECT = {"threshold": 0.0, "compensate": 0.0}  # settings that early versions of 0.2 name, at neutral values


def same_experiment(stored: Any, ours: dict[str, Any]) -> bool:
    """Whether two identities are those of one experiment. Its data count where both name them: files of early versions
    of 0.2 do not."""
    if not isinstance(stored, dict):
        return False
    left_out = {SETTINGS} if DATA in stored and DATA in ours else {SETTINGS, DATA}
    first, second = ({key: value for key, value in each.items() if key not in left_out} for each in (stored, ours))
    return first == second and same_settings(stored.get(SETTINGS), ours.get(SETTINGS))


def same_settings(stored: Any, ours: Any) -> bool:
    """Whether settings are the same, apart from those of earlier versions that changed nothing."""
    if not isinstance(stored, dict) or not isinstance(ours, dict):
        return bool(stored == ours)
    first, second = (
        {key: value for key, value in each.items() if WITHOUT_EFFECT.get(key) != value} for each in (stored, ours)
    )
    return first == second
