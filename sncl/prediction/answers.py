"""A learner's answers for a source, part by part, and how many of them are right where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.prediction.sources import Part, Source
from sncl.streams.preprocessing import Preprocessing
from sncl.training.learner import Learner


class Answers(NamedTuple):
    """The predicted class of each row by name, the probability of every class [rows, classes], and of which rows."""

    predictions: list[str]
    probabilities: Tensor
    part: Part


@dataclass
class LabelScore:
    """How many rows had a label and how many of those were predicted right; classes that the run does not know."""

    labelled: int = 0
    right: int = 0
    unknown: int = 0

    def add(self, answers: Answers, preprocessing: Preprocessing) -> None:
        known = set(preprocessing.class_names)
        for label, prediction in zip(answers.part.labels or [], answers.predictions, strict=False):
            self.labelled += label is not None
            self.right += label == prediction
            self.unknown += label is not None and label not in known

    @property
    def accuracy(self) -> float | None:
        """In percent; None where no row has a label."""
        return 100 * self.right / self.labelled if self.labelled else None

    def line(self) -> str | None:
        """What there is to say of it."""
        if self.accuracy is None:
            return None
        of_others = f"; {self.unknown} of them are of classes that the run does not know" if self.unknown else ""
        return f"accuracy {self.accuracy:.2f} % on {self.labelled} rows that have a label{of_others}"


def answer(learner: Learner, source: Source, task: int | None = None) -> Iterator[Answers]:
    """The learner's answers. ``task``, counted from 1, is the one the rows belong to: only its classes compete."""
    preprocessing = learner.preprocessing
    assert preprocessing is not None
    group = task_classes(learner, preprocessing, task)
    for part in source.parts():
        try:
            x = preprocessing.inputs(part.raw)
        except SnclError as error:
            after = f", in the rows from {part.start + 1} on" if part.start else ""
            raise SnclError(f"{source.path}{after}: {error}") from error
        logits = learner.logits(x, None if task is None else task - 1).cpu().double()
        if group is not None:
            logits = logits.masked_fill(~group, -torch.inf)
        names = preprocessing.class_names
        yield Answers([names[place] for place in logits.argmax(1).tolist()], logits.softmax(1), part)


def task_classes(learner: Learner, preprocessing: Preprocessing, task: int | None) -> Tensor | None:
    """Which classes compete, bool [classes]; None: all."""
    tasks = len(preprocessing.groups)
    if task is None:
        if learner.method.needs_task_at_test:
            name = type(learner.method).__name__
            raise SnclError(f"{name} predicts only when told the task: give `task`, a number from 1 to {tasks}")
        return None
    if not 1 <= task <= tasks:
        raise SnclError(f"`task` is a number from 1 to {tasks}, not {task}")
    group = torch.zeros(preprocessing.classes, dtype=torch.bool)
    group[list(preprocessing.groups[task - 1])] = True
    return group
