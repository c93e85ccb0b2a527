"""From a run folder back to a learner that predicts and goes on learning, without the data it learned from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sncl.errors import SnclError
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import PREPROCESSING, Experiment
from sncl.runs.loading import described_experiment, read_stored
from sncl.streams.preprocessing import Preprocessing
from sncl.tensors.fields import Fields, under
from sncl.training.checkpoint import CHECKSUM, check_seal, read_json, read_saved
from sncl.training.engine import choose_device
from sncl.training.learner import Learner

MADE_AGAIN = "bring back the file as it was, or remove it to read the data of the run instead"


def load(path: str | Path, device: str | torch.device = "cpu") -> Learner:
    """The learner of a run of ``sncl train``, finished or not, as it was at its last checkpoint.

    ``path`` is the run's folder, or a file that :meth:`Learner.save` wrote of a learner that came from here. Network,
    memory, optimiser and random numbers are where they were, so it goes on learning; ``learner.preprocessing`` makes
    inputs of raw samples and knows the names of the classes.
    """
    path = Path(path)
    if path.is_file():
        return _from_file(path, choose_device(device))
    stored = read_stored(path)
    preprocessing = stored_preprocessing(path, stored.experiment)
    return _revived(stored.experiment, preprocessing, stored.tensors, stored.learner, choose_device(device))


def stored_preprocessing(folder: Path, experiment: Experiment) -> Preprocessing:
    """How raw samples become those of a run. Where an earlier version kept nothing of it, the data are read again."""
    path = folder / PREPROCESSING
    if not path.exists():
        return _read_again(folder, experiment)
    facts = read_json(path)
    try:
        if not isinstance(facts, dict) or CHECKSUM not in facts:
            raise ValueError("it has no checksum")
        found = Preprocessing.from_json(check_seal(path, facts, MADE_AGAIN))
    except ValueError as error:
        raise SnclError(f"{path} is damaged: {error}; {MADE_AGAIN}") from error
    wanted = experiment.data if experiment.user_data is None else experiment.user_data.fingerprint
    if wanted not in (None, found.fingerprint):
        raise SnclError(f"{path} belongs to a run on other data than this one; {MADE_AGAIN}")
    return found


def _read_again(folder: Path, experiment: Experiment) -> Preprocessing:
    try:
        found = make_stream(replace(experiment, device="cpu"), None).preprocessing
    except SnclError as error:
        raise SnclError(
            f"{folder} has no {PREPROCESSING}, as runs of earlier versions, so its data are needed to use it: {error}"
        ) from error
    assert found is not None
    return found


def _from_file(path: Path, device: torch.device) -> Learner:
    """The learner in a file that one which came from a run has saved."""
    tensors, description = read_saved(path)
    if (kind := description.get("estimator")) is not None:
        raise SnclError(f"{path} holds an estimator: read it with {kind}.load(path)")
    if "experiment" in description:
        raise SnclError(f"{path} is a file of a run; name the folder of the run, {path.absolute().parent}")
    try:
        origin = description["origin"]
        experiment = described_experiment(path, {key: origin["experiment"][key] for key in origin["experiment"]})
        preprocessing = Preprocessing.from_json(origin["preprocessing"])
    except (LookupError, TypeError, ValueError) as error:
        raise SnclError(
            f"{path} does not say of which network it is: make the learner as it was made, and call learner.load(path)"
        ) from error
    return _revived(experiment, preprocessing, tensors, description, device)


def _revived(
    experiment: Experiment,
    preprocessing: Preprocessing,
    tensors: Fields,
    description: dict[str, Any],
    device: torch.device,
) -> Learner:
    """The learner of an experiment with this state. On another device it takes what is usual there."""
    here = replace(experiment, device=str(device))
    same = torch.device(experiment.device).type == device.type
    learner = make_learner(here if same else replace(here, precision="auto", engine="auto"), preprocessing)
    if not same:  # generators of another device know another kind of state
        tensors = tensors | under("random", {"gates": learner.random["gates"].get_state()})
    learner.restore(tensors, description)
    learner.preprocessing = preprocessing
    learner.origin = {key: value for key, value in experiment.described().items() if key != "format"}
    return learner
