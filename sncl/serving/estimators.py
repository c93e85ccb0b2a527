"""An estimator as a model that can be served: labels of any kind, and new ones at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.estimator.base import BaseContinualClassifier
from sncl.serving.models import Facts, ServedModel, View, facts_of, is_whole
from sncl.serving.rows import as_array, as_table
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner


class EstimatorView(View):
    """A copy of an estimator that only predicts."""

    def __init__(self, model: BaseContinualClassifier) -> None:
        self.facts: Facts = facts_of(model.learner_, len(model.classes_))
        self.model = model.snapshot()
        self.grows = model.learner_.grows
        self.labels: list[Any] = model.classes_.tolist()
        self.kind = model.classes_.dtype.kind

    def probabilities(self, rows: list[Any]) -> NDArray[np.float64]:
        return self.model.predict_proba(samples(self.model, rows))

    def learnable(self, label: Any) -> Any:
        match self.kind:
            case "b":
                fits = isinstance(label, bool)
            case "i" | "u" | "f":
                fits = is_whole(label) and (label >= 0 or self.kind != "u")
                label = type(self.labels[0])(label) if fits else label  # 4.0 is 4
            case _:
                fits = isinstance(label, str)
        return label if fits and (self.grows or label in self.labels) else None

    def allowed(self) -> str:
        if not self.grows:
            return f"this model has the labels {self.labels} and cannot get more"
        kind = {"b": "true or false", "U": "texts", "O": "texts"}.get(self.kind, "whole numbers")
        return f"labels of this model are {kind}, such as {self.labels[0]!r}"


class ServedEstimator(ServedModel):
    """An estimator that is taught by ``partial_fit``."""

    def __init__(self, model: BaseContinualClassifier) -> None:
        self.model = model

    def view(self) -> EstimatorView:
        with self.model.exclusively():
            return EstimatorView(self.model)

    def learn(self, rows: list[Any], labels: list[Any]) -> None:
        self.model.partial_fit(samples(self.model, rows), np.asarray(labels))

    def state(self) -> tuple[Fields, dict[str, Any]]:
        return self.model.state()

    def restore(self, path: Path) -> None:
        device = str(self.model.learner_.device)
        self.model = type(self.model).load(path, network=self.model.network, device=device)

    @property
    def learner(self) -> Learner:
        return self.model.learner_


def samples(model: BaseContinualClassifier, rows: list[Any]) -> Any:
    """Rows as an estimator takes them: of a table, or numbers for a network that takes images."""
    if model.encoder_ is None:
        return as_array(rows, "float64")
    names = getattr(model, "feature_names_in_", None)
    return as_table(rows, None if names is None else [str(name) for name in names])
