"""From a run, a file or an object to a model that can be served."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sncl.errors import SnclError
from sncl.estimator.base import BaseContinualClassifier
from sncl.estimator.classifier import ContinualClassifier, SNCLClassifier
from sncl.runs.models import load
from sncl.serving.estimators import ServedEstimator
from sncl.serving.learners import ServedLearner
from sncl.serving.models import ServedModel
from sncl.serving.storage import SERVING
from sncl.training.checkpoint import read_checkpoint
from sncl.training.learner import Learner

Servable = BaseContinualClassifier | Learner
ESTIMATORS = {each.__name__: each for each in (ContinualClassifier, SNCLClassifier)}


class Opened(NamedTuple):
    """A model from the disk, and where the server keeps what it learns unless told otherwise."""

    model: Servable
    snapshot: Path


def served(model: Servable) -> ServedModel:
    """A model as the server uses it."""
    if isinstance(model, BaseContinualClassifier):
        if not model.__sklearn_is_fitted__():
            raise SnclError("this estimator has learned nothing yet; call fit or partial_fit first")
        return ServedEstimator(model)
    if not isinstance(model, Learner):
        raise SnclError(f"an estimator or a Learner can be served, not {type(model).__name__}")
    if model.method.needs_task_at_test:
        raise SnclError(f"{type(model.method).__name__} predicts only when told the task, so it cannot be served")
    return ServedLearner(model)


def open_model(path: Path, device: str = "cpu") -> Opened:
    """The model in a run folder, in a file of an estimator's ``save``, or in a snapshot of a server."""
    if path.is_dir():
        return Opened(load(path, device), path / "serving.safetensors")
    _, description = read_checkpoint(path)
    snapshot = path if SERVING in description else path.with_name(f"{path.stem}.serving.safetensors")
    kind = description.get("estimator")
    if kind is not None:
        if kind not in ESTIMATORS or description.get("own_network"):
            raise SnclError(
                f"{path} holds a {kind} around a network of your own, which is code: load it in Python, then "
                "from sncl.serving import serve and serve(estimator)"
            )
        return Opened(ESTIMATORS[kind].load(path, device=device), snapshot)
    if "origin" not in description and "experiment" not in description:
        raise SnclError(
            f"{path} holds a learner without the code of its network: make the learner in Python as it was made, load "
            "the file, then from sncl.serving import serve and serve(learner)"
        )
    return Opened(load(path, device), snapshot)
