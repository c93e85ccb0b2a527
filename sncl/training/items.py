"""Items of a live stream as batches: what may come, and what stands for a missing label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Inputs, mapped, named, rows
from sncl.training.learner import Learner


@dataclass(frozen=True)
class Item:
    """Samples of a live stream: a batch, or a single sample if ``y`` is one label.

    ``y`` is None, or negative or NaN for a sample, where a label is not known. ``ids`` (texts or whole numbers, one for
    each sample) are the names under which such labels may come as :class:`Late`. ``token`` is anything JSON can hold
    that tells the source where the item came from.
    """

    x: Any
    y: Any = None
    ids: Any = None
    token: Any = None


@dataclass(frozen=True)
class Late:
    """Labels of samples that came before as an :class:`Item` with these ``ids``."""

    ids: Any
    y: Any
    token: Any = None


def as_item(item: Any) -> Item | Late:
    """What a source yields, by its parts."""
    if isinstance(item, (Item, Late)):
        return item
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return Item(item[0], item[1], token=item[2] if len(item) == 3 else None)
    if isinstance(item, (Tensor, Mapping, np.ndarray)):
        return Item(item)
    raise SnclError(
        f"an item of a stream is (x, y), (x, y, token), x alone, an Item or a Late, not {type(item).__name__}"
    )


def late_labels(y: Any, count: int) -> Tensor:
    """One label for each id."""
    labels = _tensor(y).reshape(-1).cpu()
    if len(labels) != count:
        raise SnclError(f"late labels are one for each id: got {len(labels)} for {count} ids")
    if not bool((labels >= 0).all()):
        raise SnclError("late labels are 0, 1, 2, ...; leave out what is still not known")
    return whole_labels(labels)


def item_batch(learner: Learner, x: Any, y: Any) -> tuple[Inputs, Tensor]:
    """Tensors with samples; labels that are not there are -1."""
    inputs: Inputs = {name: _tensor(part) for name, part in x.items()} if isinstance(x, Mapping) else _tensor(x)
    labels = None if y is None else _tensor(y)
    if _is_single(learner, inputs) if labels is None else labels.dim() == 0:
        inputs = mapped(lambda part: part.unsqueeze(0), inputs)
    if labels is None:
        labels = torch.full((rows(inputs),), -1)
    return inputs, labels.reshape(1).cpu() if labels.dim() == 0 else labels.cpu()


def _is_single(learner: Learner, x: Inputs) -> bool:
    """Whether inputs without labels are a single sample: by the first batch, or by what the network can take."""
    if known := learner.description()["example"]:
        return any(len(known[name][0]) == part.dim() + 1 for name, part in named(x).items() if name in known)
    try:
        learner.prepare(x)
    except SnclError:
        try:
            learner.prepare(mapped(lambda part: part.unsqueeze(0), x))
        except SnclError:
            return False  # what is wrong will be said of the batch
        return True
    return False


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        made = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SnclError(f"inputs and labels are tensors, arrays or numbers, not {type(value).__name__}") from error
    return made.to(torch.get_default_dtype()) if made.is_floating_point() else made


def whole_labels(labels: Tensor) -> Tensor:
    """Labels that came as real numbers, beside a NaN perhaps, as integers."""
    if not labels.is_floating_point():
        return labels
    if (labels != labels.round()).any():
        raise SnclError("labels are whole numbers 0, 1, 2, ...; NaN or a negative number stands for none")
    return labels.long()
