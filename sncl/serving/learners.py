"""A learner as a model that can be served: classes by number, or by name where its run knows them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.runs.models import load
from sncl.serving.models import ServedModel, View, facts_of, is_whole
from sncl.serving.rows import as_array, as_parts, as_table
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint
from sncl.training.inputs import MOST_NEW_OUTPUTS, short
from sncl.training.learner import Learner


class LearnerView(View):
    """A snapshot of a learner, and how rows become its inputs."""

    def __init__(self, learner: Learner) -> None:
        self.snapshot = learner.snapshot()
        self.grows, self.outputs = learner.grows, learner.outputs
        self.dtypes = input_types(learner)
        self.named = self.snapshot.preprocessing is not None
        self.labels: list[Any] = list(self.snapshot.class_names) if self.named else list(range(self.outputs))
        self.facts = facts_of(learner, len(self.labels))

    def probabilities(self, rows: list[Any]) -> NDArray[np.float64]:
        x = inputs(self.snapshot.preprocessing, self.dtypes, rows)
        return self.snapshot.logits(x)[:, : len(self.labels)].double().softmax(1).cpu().numpy()

    def learnable(self, label: Any) -> Any:
        if self.named:
            name = str(label) if is_whole(label) else label
            return name if name in self.labels else None
        most = self.outputs + (MOST_NEW_OUTPUTS if self.grows else 0)
        return int(label) if is_whole(label) and 0 <= label < most else None

    def allowed(self) -> str:
        if self.named:
            return f"the classes of this run are {', '.join(self.labels)}"
        return f"classes are the numbers 0 to {self.outputs - 1}" + (", or the next ones" if self.grows else "")


class ServedLearner(ServedModel):
    """A learner that is taught by ``learn``, a step for each request."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def view(self) -> LearnerView:
        with self.learner.exclusively():
            return LearnerView(self.learner)

    def learn(self, rows: list[Any], labels: list[Any]) -> None:
        known = self.learner.preprocessing
        if known is not None and known.encoder is not None:
            known.update(as_table(rows, list(known.encoder.columns)))
        y = torch.tensor(labels) if known is None else known.labels(labels)
        self.learner.learn(inputs(known, input_types(self.learner), rows), y)

    def state(self) -> tuple[Fields, dict[str, Any]]:
        with self.learner.exclusively():
            return self.learner.state(), deepcopy(self.learner.description())

    def restore(self, path: Path) -> None:
        if self.learner.origin is None:
            self.learner.restore(*read_checkpoint(path))
        else:
            self._learner = load(path, self.learner.device)  # with its preprocessing, which learns too

    @property
    def learner(self) -> Learner:
        return self._learner


def input_types(learner: Learner) -> dict[str, str]:
    """The types of its inputs by name; real numbers are brought to their precision by the learner."""
    return {
        name.removeprefix("x/"): "float64" if value.is_floating_point() else short(value.dtype)
        for name, value in learner.signature.example.items()
    }


def inputs(preprocessing: Any, dtypes: dict[str, str], rows: list[Any]) -> Any:
    """Rows as a learner takes them, whose inputs have these types."""
    if preprocessing is not None:
        if preprocessing.encoder is not None:
            return preprocessing.inputs(as_table(rows, list(preprocessing.encoder.columns)))
        plain = _pixels(rows, preprocessing.shape) if preprocessing.pixels else as_array(rows, "float64")
        return preprocessing.inputs(plain)
    if dtypes.keys() == {"x"}:
        return torch.from_numpy(as_array(rows, dtypes["x"]))
    return {name: torch.from_numpy(part) for name, part in as_parts(rows, dtypes).items()}


def _pixels(rows: list[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Images as nested lists; those of one channel may come without it."""
    found = as_array(rows, "uint8")
    if shape[0] == 1 and found.shape[1:] == shape[1:]:
        found = found[:, None]
    if found.shape[1:] != shape:
        raise SnclError(f"an image is nested lists of the shape {list(shape)}, not {list(found.shape[1:])}")
    return found
