"""What predicts: all that follows from logits, for a learner and for its snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.taps import Tapped, evaluating
from sncl.streams.transforms import Transform, eval_input
from sncl.tensors.fields import Inputs, mapped, named, pieces, rows
from sncl.training.inputs import Labels, Samples, as_batch, as_inputs
from sncl.training.recorded import Recorded, form_of
from sncl.training.signature import Signature

EVALUATION_BATCH = 500  # samples at a time: fits the cache of a core


class Inference(NamedTuple):
    """All that decides the logits of samples, with a network in evaluation mode."""

    method: Method
    net: Tapped
    transform: Transform
    signature: Signature
    device: torch.device

    @torch.no_grad()
    def logits(self, x: Samples, task: int | None) -> Tensor:
        """The logits of samples, computed some hundred at a time. [rows, classes]"""
        return self.of(self.accepted(x, task), task)

    def accepted(self, x: Samples, task: int | None) -> Inputs:
        """Samples that the network takes, on its device."""
        if task is None and self.method.needs_task_at_test:
            raise SnclError(f"{type(self.method).__name__} predicts only when told the task: logits(x, task=0)")
        given = x if self.signature.fits(x) else self.signature.checked(as_inputs(x))
        return mapped(self._here, given) if rows(given) <= EVALUATION_BATCH else given

    def _here(self, x: Tensor) -> Tensor:
        return x if x.device == self.device else x.to(self.device)

    def of(self, given: Inputs, task: int | None) -> Tensor:
        """The logits of accepted samples."""
        try:
            if rows(given) <= EVALUATION_BATCH:
                return self.method.predict(self.net, eval_input(self.transform, given), task)
            parts = (mapped(self._here, part) for part in pieces(given, EVALUATION_BATCH))
            return torch.cat([self.of(part, task) for part in parts])
        except ValueError as error:  # a BatchNorm without running statistics, which needs two samples
            raise SnclError(
                f"the network {type(self.net.body).__name__} cannot predict these samples: {error}"
            ) from error


def replayed(inference: Inference, recorded: Recorded, x: Samples, task: int | None) -> Tensor:
    """The same logits, with a network that is in training: replayed where they may be, or in evaluation mode."""
    with torch.no_grad():
        return _replayed(inference, recorded, inference.accepted(x, task), task)


def _replayed(inference: Inference, recorded: Recorded, given: Inputs, task: int | None) -> Tensor:
    if inference.device.type != "cpu" or rows(given) > EVALUATION_BATCH:
        with evaluating(inference.net):
            return inference.of(given, task)
    inputs, made = list(named(given).values()), list[Tensor]()
    form = (task, *named(given), form_of(inputs))
    if found := recorded.replayable(form):
        return found[0](inputs)[0]

    def run() -> list[Tensor]:
        with evaluating(inference.net):
            made.append(inference.of(given, task))
        return made

    recorded.written(form, inputs, run)
    return made[0]


class Predicting(ABC):
    """Something with logits: a learner, or a snapshot of one.

    ``task`` is the number of the task that samples belong to, for methods that must be told.
    """

    @abstractmethod
    def logits(self, x: Samples, task: int | None = None) -> Tensor:
        """The logits of samples. [rows, classes]"""

    def predict(self, x: Samples, task: int | None = None) -> Tensor:
        """The most likely class of each sample. [rows]"""
        return self.logits(x, task).argmax(1)

    def predict_proba(self, x: Samples, task: int | None = None) -> Tensor:
        """The probability of each class: the softmax of the logits. [rows, classes]"""
        return self.logits(x, task).softmax(1)

    def score(self, x: Samples, y: Labels, task: int | None = None) -> float:
        """The share of samples that are predicted right, from 0 to 1."""
        given, labels = as_batch(x, y)
        return float((self.predict(given, task).cpu() == labels.cpu()).double().mean())

    def predict_one(self, x: Samples, task: int | None = None) -> int:
        """The most likely class of a single sample, which has no axis of samples."""
        return int(self.predict(one_row(x), task)[0])

    def predict_proba_one(self, x: Samples, task: int | None = None) -> dict[int, float]:
        """The probability of each class for a single sample, by class."""
        return dict(enumerate(self.predict_proba(one_row(x), task)[0].tolist()))


def one_row(x: Any) -> Samples:
    """A single sample as a batch of one."""
    if isinstance(x, Mapping):
        return {name: _one_row(value) for name, value in x.items()}
    made: Samples = _one_row(x)
    return made


def _one_row(value: Any) -> Any:
    return value.unsqueeze(0) if isinstance(value, Tensor) else np.asarray(value)[None]


def in_words(net: nn.Module) -> str:
    """A network by its class and size."""
    count = sum(parameter.numel() for parameter in net.parameters())
    return f"{type(net).__name__} with {count:,} parameters"


def counted(number: int, what: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {what}{'s' * (number != 1)}"
