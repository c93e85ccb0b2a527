"""How well a learner does on a stream: accuracies on its test sets and the fraction of open neurons."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from sncl.evaluation.accuracy import READOUTS, Readout, mean_recall, predicted
from sncl.evaluation.by_class import confusion_counts, joined_counts
from sncl.evaluation.collapse import TaskTest, collapses
from sncl.evaluation.metrics import Row, mean
from sncl.networks.gating.attach import open_neurons, unmasked, variance_gates
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields
from sncl.training.finite import check_learned
from sncl.training.learner import Learner
from sncl.training.side_by_side import Logits, predictions

Accuracies = dict[Readout, list[float | None]]
CONFUSION = "confusion"
UNMEASURED = -1.0  # in the tensors of a checkpoint, where None says it elsewhere


class Assessment(NamedTuple):
    """What the test sets say of a learner: accuracies, and the mean recall of each task, in percent.

    The recall is that of the task's own classes where they alone may compete, so that a preference for the latest
    classes does not count. ``confusion`` is that of the main read-out over all samples tested, see
    :func:`sncl.evaluation.by_class.confusion_counts`.
    """

    accuracies: Accuracies
    recalls: list[float | None]
    confusion: Tensor | None = None


@dataclass
class Scores:
    """What was measured: accuracies in percent by read-out, of the untrained network and after each task.

    ``best_recalls`` has the mean recall of each task learned, the better one of those after its own end and after the
    next task, which may learn it from what is replayed. ``confusion`` is that of the last evaluation, which older
    checkpoints do not have.
    """

    untrained: Accuracies = field(default_factory=dict)
    matrices: dict[Readout, list[list[float | None]]] = field(default_factory=dict)
    open_by_task: list[float] = field(default_factory=list)
    seconds: float = 0.0
    best_recalls: list[float] = field(default_factory=list)
    largest_loss: float = 0.0  # of the task that is learned now
    confusion: Tensor | None = field(default=None, init=False, repr=False, compare=False)
    packed: dict[Readout, list[Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def add(self, tested: Assessment, learned: range, open_fraction: float | None) -> None:
        """What was measured after one more task; ``learned`` are those so far."""
        for readout, row in tested.accuracies.items():
            self.matrices.setdefault(readout, []).append(row)
        recalls = [tested.recalls[task] or 0.0 for task in learned]
        *before, latest = self.best_recalls or [0.0]
        known = len(before)
        self.best_recalls = [*before, max(latest, recalls[known]), *recalls[known + 1 :]]
        self.confusion = tested.confusion
        if open_fraction is not None:
            self.open_by_task.append(open_fraction)

    def tensors(self) -> Fields:
        """The matrices for a checkpoint: a million numbers for a thousand tasks, which JSON would take a second for.

        And the confusion of the last evaluation.
        """
        for readout, rows in self.matrices.items():
            packed = self.packed.setdefault(readout, [])
            packed += [
                torch.tensor([UNMEASURED if value is None else value for value in row], dtype=torch.float64)
                for row in rows[len(packed) :]
            ]
        matrices: Fields = {readout: torch.stack(packed) for readout, packed in self.packed.items()}
        return matrices if self.confusion is None else matrices | {CONFUSION: self.confusion}

    def description(self) -> dict[str, Any]:
        """All else, as plain data; it names the matrices in their order."""
        named = ("untrained", "open_by_task", "seconds", "best_recalls", "largest_loss")
        plain = {name: getattr(self, name) for name in named}
        return plain | {"matrices": dict.fromkeys(self.matrices)}

    @classmethod
    def restored(cls, description: dict[str, Any], tensors: Fields) -> Self:
        """The inverse of :meth:`description` and :meth:`tensors`.

        Early checkpoints of 0.2 have the matrices in their description.
        """
        matrices = {
            readout: [[None if value == UNMEASURED else value for value in row] for row in tensors[readout].tolist()]
            if rows is None
            else rows
            for readout, rows in description["matrices"].items()
        }
        found = cls(**description | {"matrices": matrices})
        found.confusion = tensors.get(CONFUSION)
        if found.confusion is not None and (found.confusion.dtype != torch.int64 or found.confusion.shape[1:] != (3,)):
            raise ValueError("no confusion")
        return found

    def last(self, tasks: range) -> dict[Readout, Row]:
        """The last accuracies of these tasks, by read-out."""
        return {readout: [rows[-1][task] for task in tasks] for readout, rows in self.matrices.items()}


def learned_after(stream: Stream, task: int) -> range:
    """The tasks seen so far."""
    return range(task + 1 if stream.boundaries else stream.test_tasks)


def tested_after(stream: Stream, task: int) -> range:
    """The tasks seen so far, and the next one before it is learned."""
    return range(min(task + 2, stream.test_tasks) if stream.boundaries else stream.test_tasks)


def readouts_of(learner: Learner, stream: Stream) -> tuple[Readout, ...]:
    """How the logits of a stream are read: a method that must be told the task has no other read-out."""
    readouts = READOUTS[stream.scenario]
    if learner.method.needs_task_at_test:
        readouts = tuple(readout for readout in readouts if readout == "task_il")
    return readouts


def tested_sizes(stream: Stream, tasks: range) -> list[int]:
    """How many samples are tested of each task."""
    return [len(stream.test_phases[task].rows) for task in tasks]


def assessed(learner: Learner, stream: Stream, tasks: range) -> Assessment:
    """Accuracy and mean recall in percent on the test sets of ``tasks``; None for the others."""
    with predictions(learner, tested_sizes(stream, tasks)) as logits_of:
        return assessment(stream, tasks, readouts_of(learner, stream), logits_of)


def assessment(stream: Stream, tasks: range, readouts: tuple[Readout, ...], logits_of: Logits) -> Assessment:
    """What ``logits_of`` samples of tasks say."""
    rows: Accuracies = {readout: [None] * stream.test_tasks for readout in readouts}
    recalls: list[float | None] = [None] * stream.test_tasks
    confusions: list[Tensor] = []
    for task in tasks:
        x, y = stream.test(task)
        logits = logits_of(x, task)
        for readout in readouts:
            answers = predicted(logits, stream.groups[task], readout)
            rows[readout][task] = 100 * int((answers == y).sum()) / len(y)
            confusions += [confusion_counts(y, answers)] if readout == readouts[0] else []
        recalls[task] = mean_recall(answers, y)  # of the last read-out: the task's own classes compete, if any does
    return Assessment(rows, recalls, joined_counts(confusions))


def check_task(scores: Scores, tests: list[TaskTest], task: int, largest_loss: float) -> None:
    """Refuse a task that has ended and diverged, by the largest loss in it."""
    own = (each for each in collapses(scores.best_recalls, tests) if each.task > task)
    check_learned(largest_loss, next(own, None))


def accuracies(learner: Learner, stream: Stream, tasks: range) -> Accuracies:
    """Accuracy in percent on the test sets of ``tasks``; None for the others."""
    return assessed(learner, stream, tasks).accuracies


def task_tests(stream: Stream) -> list[TaskTest]:
    """How much each test set of a stream can tell."""
    labels = (stream.test_y[phase.rows] for phase in stream.test_phases)
    return [TaskTest(len(y), len(y.unique())) for y in labels]


def accuracy_variants(learner: Learner, stream: Stream) -> dict[str, dict[Readout, float]]:
    """The final accuracy without what only matters in evaluation: the average of the weights, the mask of the gates."""
    variants: dict[str, AbstractContextManager[None]] = {}
    if learner.ema:
        variants["as_trained"] = learner.as_trained()
    if next(variance_gates(learner.net), None) is not None and open_fraction(learner) != 1:
        variants["unmasked"] = unmasked(learner.net)
    found: dict[str, dict[Readout, float]] = {}
    for name, variant in variants.items():
        with variant:
            rows = accuracies(learner, stream, range(stream.test_tasks))
        found[name] = {readout: mean(row) for readout, row in rows.items()}
    return found


def open_when_predicting(learner: Learner) -> dict[str, Tensor]:
    """Which neurons of the network that predicts are open, by layer: bool [channels]."""
    with learner.predicting():
        return open_neurons(learner.net.body)


def open_fraction(learner: Learner) -> float | None:
    """The fraction of all gated neurons that is open; None where there are no gates."""
    layers = list(open_when_predicting(learner).values())
    return sum(int(layer.sum()) for layer in layers) / sum(layer.numel() for layer in layers) if layers else None


def open_by_layer(learner: Learner) -> dict[str, float] | None:
    """The fraction of each gated layer's neurons that is open; None where there are no gates."""
    return {name: float(layer.float().mean()) for name, layer in open_when_predicting(learner).items()} or None
