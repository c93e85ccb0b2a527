"""What a learner does with one item of a live stream: predict, then learn what is labelled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Fields, Inputs, picked
from sncl.training.items import Late, late_labels, whole_labels
from sncl.training.learner import Learner
from sncl.training.pending import Unlabelled, as_ids


def predict_and_learn(
    learner: Learner, x: Inputs, y: Tensor, ids: Any, waiting: Unlabelled
) -> tuple[Tensor, Fields, Tensor]:
    """Predict a batch and learn what is labelled of it; all else waits, under its ids where there are any.

    Returned are the predictions, the losses, and of each labelled sample whether the prediction that counts was right.
    """
    names = None if ids is None else as_ids(ids, len(y))
    waiting.refuse_known(names or [])
    learner.prepare(x)
    predicted, losses, hits = learner.predict(x), Fields(), torch.zeros(0, dtype=torch.float64)
    x, answers, labelled = learner.signature.checked(x), predicted.cpu(), y >= 0  # NaN is not
    known, unknown = labelled.nonzero()[:, 0], (~labelled).nonzero()[:, 0]
    if len(known):
        now, labels = picked(x, known) if len(unknown) else x, whole_labels(y[known])
        said, met = waiting.answered(now, answers[known])
        losses = learner.learn(now, labels)
        waiting.forget(met)
        hits = (said == labels).double()
    if len(unknown) and names is not None:
        waiting.keep([names[place] for place in unknown.tolist()], picked(x, unknown), answers[unknown])
    elif len(unknown):
        waiting.ask(picked(x, unknown), answers[unknown])
    return predicted, losses, hits


def learn_late(learner: Learner, item: Late, waiting: Unlabelled) -> tuple[Tensor, Fields, Tensor]:
    """Learn samples whose labels have come: what was predicted of them then, the losses, and whether it was right."""
    ids = as_ids(item.ids)
    labels = late_labels(item.y, len(ids))
    if len(set(ids)) < len(ids):
        raise SnclError("an id names one sample, and two late labels have the same one")
    known = waiting.known(ids)
    if not known:
        waiting.release([], len(ids))
        return torch.zeros(0, dtype=torch.int64), {}, torch.zeros(0, dtype=torch.float64)
    matched, labels = [ids[place] for place in known], labels[known]
    x, said = waiting.found(matched)
    losses = learner.learn(x, labels)
    waiting.release(matched, len(ids) - len(known))
    return said, losses, (said == labels).double()
