"""Items of a live stream as batches: what may come, and what stands for a missing label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Inputs, mapped, named, rows
from sncl.training.learner import Learner


def item_parts(item: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels and token of an item."""
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return item[0], item[1], item[2] if len(item) == 3 else None
    if isinstance(item, (Tensor, Mapping, np.ndarray)):
        return item, None, None
    raise SnclError(f"an item of a stream is (x, y), (x, y, token) or x alone, not {type(item).__name__}")


def item_batch(learner: Learner, x: Any, y: Any) -> tuple[Inputs, Tensor]:
    """Tensors with samples; labels that are not there are -1."""
    inputs: Inputs = {name: _tensor(part) for name, part in x.items()} if isinstance(x, Mapping) else _tensor(x)
    labels = None if y is None else _tensor(y)
    if labels is None:
        shapes = learner.description()["example"]
        single = any(len(shapes[name][0]) == part.dim() + 1 for name, part in named(inputs).items() if name in shapes)
    else:
        single = labels.dim() == 0
    if single:
        inputs = mapped(lambda part: part.unsqueeze(0), inputs)
    if labels is None:
        labels = torch.full((rows(inputs),), -1)
    return inputs, labels.reshape(1).cpu() if labels.dim() == 0 else labels.cpu()


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
