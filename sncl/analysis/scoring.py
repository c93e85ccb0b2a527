"""How well a run's network does on some test samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sncl.evaluation.accuracy import READOUTS, correct
from sncl.methods.terms import label_losses
from sncl.runs.loading import Trained


class TaskScores(NamedTuple):
    """The mean loss and the accuracy in percent by read-out; every task counts the same."""

    loss: Tensor
    accuracy: dict[str, float]


def score_tests(run: Trained, tests: list[tuple[Tensor, Tensor]]) -> TaskScores:
    """Score the network on test samples by task."""
    readouts = READOUTS[run.stream.scenario]
    scores: dict[str, list[float]] = {readout: [] for readout in readouts}
    losses = []
    for task, (x, y) in enumerate(tests):
        logits = run.learner.logits(x)
        losses.append(label_losses(logits, y).double().mean())
        for readout in readouts:
            right = int(correct(logits, y, run.stream.groups[task], readout))
            scores[readout].append(100 * right / len(y))
    accuracy = {readout: sum(values) / len(values) for readout, values in scores.items()}
    return TaskScores(torch.stack(losses).mean(), accuracy)
