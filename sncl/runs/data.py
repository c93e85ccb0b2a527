"""Whether the data found here are those a run was made with: user data by their identity, benchmarks by a fingerprint.

A finished run is found without reading its data while the stamp of their files is the one it was made with, and where
there are none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.runs.experiment import FILES, Experiment, read_described
from sncl.runs.result import Result
from sncl.streams.benchmarks import named
from sncl.streams.datasets.sources import data_root, file_stamp, fingerprint_at
from sncl.training.folder import DATA, same_experiment


def stamp_of(experiment: Experiment, data: Path | None) -> str | None:
    """The stamp of the files a benchmark is read from; None for user data and where there are none."""
    if experiment.user_data is not None:
        return None
    return file_stamp(named(experiment.stream).dataset, data_root(data))


def refuse_other_data(experiment: Experiment, folder: Path, result: Result, data: Path | None) -> None:
    """Refuse to show the result in ``folder`` where the data found here are others than it was made with."""
    stamp = stamp_of(experiment, data)
    if stamp is None or stamp == read_described(folder).get(FILES):
        return
    if fingerprint_at(named(experiment.stream).dataset, data_root(data), stamp) != result.manifest.data:
        raise other_data(folder, experiment.stream)


def refuse_changed_data(folder: Path, stored: dict[str, Any], ours: dict[str, Any]) -> None:
    """Say so, where a run differs from the one in the folder in the content of its data alone."""
    user_data, theirs = ours.get("user_data"), stored.get("user_data")
    if isinstance(user_data, dict) and isinstance(theirs, dict):
        same_stream = (ours["stream"], user_data["cut"]) == (stored.get("stream"), theirs.get("cut"))
        if same_stream and user_data["fingerprint"] != theirs.get("fingerprint"):
            raise other_data(folder, ours["stream"])
    if same_experiment({key: value for key, value in stored.items() if key != DATA}, ours):
        raise other_data(folder, ours["stream"])


def other_data(folder: Path, stream: str) -> SnclError:
    return SnclError(
        f"{folder} was made with other data: what {stream} names has changed since; bring back the data, or choose "
        "another `out`"
    )
