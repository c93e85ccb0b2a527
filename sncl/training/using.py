"""A learner as it is used: whole loaders and single samples instead of batches, and what it is in a line or two."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import nn

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.method import Method
from sncl.networks.gating.attach import open_neurons
from sncl.tensors.fields import Fields, end_to_end
from sncl.training.exclusive import ExclusivelyCopied
from sncl.training.finite import LossWatch
from sncl.training.inputs import Labels, Samples, as_inputs, as_labels
from sncl.training.predicting import Predicting, counted, in_words, one_row

LABELS = "labels"  # of a batch that is one dictionary, as loaders for the networks of Hugging Face yield them
MEMBERS = (2, 3)  # of a batch that is a tuple


class BatchLearner(Predicting, ExclusivelyCopied):
    """What follows from learning one batch."""

    body: nn.Module
    method: Method
    memory: Memory | None
    steps: int
    tasks: int
    outputs: int
    device: torch.device
    watch: LossWatch

    def __repr__(self) -> str:
        with self.exclusively():
            facts = [in_words(self.body), type(self.method).__name__]
            if self.memory is not None:
                facts.append(f"memory {len(self.memory):,} of {self.memory.capacity:,}")
            facts.append(counted(self.steps, "step"))
            if self.tasks:
                facts.append(counted(self.tasks, "task") + " ended")
            if layers := open_neurons(self.body).values():
                total = sum(layer.numel() for layer in layers)
                facts.append(f"{sum(int(layer.sum()) for layer in layers):,} of {total:,} neurons open")
            if self.outputs:
                facts.append(counted(self.outputs, "output"))
            facts += [str(self.device)] + ["diverged"] * bool(self.watch.diverged)
        return f"{type(self).__name__}({', '.join(facts)})"

    @abstractmethod
    def learn(self, x: Samples, y: Labels, weight: Labels | None = None) -> Fields:
        """Learn from one batch."""

    @abstractmethod
    def boundary(self, x: Samples | None = None, y: Labels | None = None) -> None:
        """Say that a task has ended."""

    def fit(self, loader: Iterable[Any], epochs: int = 1, boundary: bool = False, progress: bool = False) -> Self:
        """Learn every batch of a loader: ``learn`` in a loop, with the same bits.

        ``loader`` is anything that yields batches, such as a ``torch.utils.data.DataLoader`` or a list: ``(x, y)``,
        ``(x, y, weight)``, or one dictionary with ``labels`` beside the inputs of the network. Each of ``epochs`` reads
        it once more. ``boundary`` says that a task has ended behind them, also to methods that look at its samples once
        more; these are then kept until it ends. ``progress`` prints a line for every epoch; for a bar within them, give
        ``tqdm(loader)``. Other threads may predict meanwhile.
        """
        if type(epochs) is not int or epochs < 1:
            raise SnclError(f"`epochs` is at least 1, not {epochs!r}")
        if isinstance(loader, (str, Mapping)) or not isinstance(loader, Iterable):
            raise SnclError(f"`loader` yields batches (x, y), as a DataLoader or a list does, not {_kind(loader)}")
        if epochs > 1 and isinstance(loader, Iterator):
            raise SnclError(
                f"`loader` can be read only once (it is {_kind(loader)}), and `epochs` is {epochs}; give a list or a "
                "DataLoader, or call fit once for every epoch"
            )
        kept: list[tuple[Any, ...]] = []
        for epoch in range(epochs):
            losses = self._learn_all(loader, kept if boundary and self.method.revisits and epoch == 0 else None)
            if progress:
                mean = float(torch.stack(losses).mean())
                print(f"epoch {epoch + 1} of {epochs}: {len(losses):,} batches, loss {mean:.4f}", flush=True)
        if boundary and kept:
            self.boundary(end_to_end([as_inputs(x) for x, *_ in kept]), torch.cat([as_labels(y) for _, y, *_ in kept]))
        elif boundary:
            self.boundary()
        return self

    def _learn_all(self, loader: Iterable[Any], kept: list[tuple[Any, ...]] | None) -> list[torch.Tensor]:
        """Learn one epoch and keep its batches, where they are asked for; the loss of each."""
        losses = []
        for item in loader:
            batch = batch_parts(item)
            losses.append(torch.stack(list(self.learn(*batch).values())).sum())
            if kept is not None:
                kept.append(batch)
        if not losses:
            raise SnclError("`loader` has no batch to learn from")
        return losses

    def learn_one(self, x: Samples, y: int) -> Fields:
        """Learn a single sample, which has no axis of samples: the same as ``learn`` with a batch of one.

        A BatchNorm uses its running statistics for it and leaves them as they are: such a network should learn some
        batches first.
        """
        return self.learn(one_row(x), torch.as_tensor(y).reshape(1))


def batch_parts(item: Any) -> tuple[Any, ...]:
    """Inputs, labels and perhaps weights of what a loader yields."""
    if isinstance(item, Mapping) and LABELS in item:
        return {name: value for name, value in item.items() if name != LABELS}, item[LABELS]
    if isinstance(item, (tuple, list)) and len(item) in MEMBERS:
        return tuple(item)
    what = _kind(item) + (f" of {len(item)}" if isinstance(item, (tuple, list)) else "")
    raise SnclError(f"a batch is (x, y), (x, y, weight) or a dictionary with {LABELS!r}, not {what}")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
