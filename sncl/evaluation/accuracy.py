"""Accuracy, read out of the same logits in each of the field's settings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Readout = Literal["class_il", "task_il", "domain_il", "gcl"]
READOUTS: dict[str, tuple[Readout, ...]] = {
    "class-il": ("class_il", "task_il"),
    "domain-il": ("domain_il",),
    "general": ("gcl",),
}


def predicted(logits: Tensor, group: Tensor, readout: Readout) -> Tensor:
    """The class of each sample. ``group`` bool [classes] are the classes of the test task.

    Task-IL is told the task, so only its classes compete; every other setting lets all output units compete.
    """
    if readout == "task_il":
        logits = logits.masked_fill(~group, -torch.inf)
    return logits.argmax(1)


def correct(logits: Tensor, y: Tensor, group: Tensor, readout: Readout) -> Tensor:
    """How many samples are right."""
    return (predicted(logits, group, readout) == y).sum()


def mean_recall(answers: Tensor, y: Tensor) -> float:
    """The share of right answers in each class that occurs in ``y``, in percent, averaged over these classes."""
    counts = torch.bincount(y)
    hits = torch.bincount(y[answers == y], minlength=len(counts))
    occurs = counts > 0
    return 100 * float((hits[occurs].double() / counts[occurs]).mean())
