"""What the server asks of a model: a view that predicts without waiting, and steps that learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.networks.gating.attach import open_neurons
from sncl.serving.refusals import RequestRefused, listed
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

UNFIT = (SnclError, ValueError, TypeError, LookupError, OverflowError, RuntimeError)  # what wrong rows may lead to


class Facts(NamedTuple):
    """Numbers about a learner between two steps; ``open`` is None where no neuron has a gate."""

    steps: int
    classes: int
    samples: int
    capacity: int
    open: float | None


class View(ABC):
    """A model as it was between two steps. Nothing changes it, and any number of threads may ask it.

    ``labels`` are its classes as JSON has them, in the order of :meth:`probabilities`.
    """

    facts: Facts
    labels: list[Any]

    @abstractmethod
    def probabilities(self, rows: list[Any]) -> NDArray[np.float64]:
        """Of each class. [rows, classes]"""

    @abstractmethod
    def learnable(self, label: Any) -> Any:
        """The label as predictions have it; None where it cannot be learned."""

    @abstractmethod
    def allowed(self) -> str:
        """Which labels can be learned, in words."""

    def predict(self, rows: list[Any]) -> tuple[list[Any], NDArray[np.float64]]:
        """The most likely label of each row, and the probabilities; rows that do not fit are refused."""
        try:
            found = self.probabilities(rows)
        except UNFIT as error:
            line = str(error).strip().partition("\n")[0]
            raise RequestRefused(422, f"these rows do not fit the model: {line or type(error).__name__}") from error
        return [self.labels[number] for number in found.argmax(1)], found

    def checked_labels(self, labels: list[Any]) -> list[Any]:
        """The labels as predictions have them; those that cannot be learned are refused."""
        found = [self.learnable(label) for label in labels]
        if None in found:
            wrong = list(dict.fromkeys(label for label, each in zip(labels, found, strict=True) if each is None))
            raise RequestRefused(
                422, f"these labels cannot be learned: {listed(wrong)}; {self.allowed()}", {"labels": wrong}
            )
        return found


class ServedModel(ABC):
    """A model that one thread teaches while others look at its views."""

    @abstractmethod
    def view(self) -> View:
        """The model as it is now."""

    @abstractmethod
    def learn(self, rows: list[Any], labels: list[Any]) -> None:
        """Learn rows that a view has predicted and labels that it has checked."""

    @abstractmethod
    def state(self) -> tuple[Fields, dict[str, Any]]:
        """A copy of everything that decides what happens next, as tensors and plain data."""

    @abstractmethod
    def restore(self, path: Path) -> None:
        """Go on where :meth:`state` was taken; the file may hold more than that."""

    @property
    @abstractmethod
    def learner(self) -> Learner:
        """What learns."""


def facts_of(learner: Learner, classes: int) -> Facts:
    """Numbers about a learner as it is now."""
    with learner.predicting():
        layers = [layer.cpu() for layer in open_neurons(learner.net.body).values()]
    count = sum(len(layer) for layer in layers)
    memory = learner.memory
    return Facts(
        steps=learner.steps,
        classes=classes,
        samples=0 if memory is None else len(memory),
        capacity=0 if memory is None else memory.capacity,
        open=sum(int(layer.sum()) for layer in layers) / count if count else None,
    )


def is_whole(label: Any) -> bool:
    """Whether a label is a whole number that every computer knows."""
    number = isinstance(label, int | float) and not isinstance(label, bool)
    return number and abs(label) < 2**53 and label == int(label)
