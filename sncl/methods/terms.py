"""The terms that methods add up. Each is the mean over rows, as in the literature these weights come from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sncl.tensors.fields import Fields, Inputs, end_to_end, inputs


def joined(now: Fields, past: Sequence[Fields]) -> tuple[Inputs, Tensor]:
    """Inputs and labels of the batch and of what is replayed beside it, end to end."""
    batches = (now, *past)
    return end_to_end([inputs(rows) for rows in batches]), torch.cat([rows["y"] for rows in batches])


def label_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of every row over all output units. [rows]"""
    return F.cross_entropy(logits.float(), y, reduction="none")


def logit_distance(logits: Tensor, remembered: Tensor) -> Tensor:
    """Mean squared difference of logits, over rows and classes."""
    return F.mse_loss(logits.float(), remembered.float())


def feature_distance(features: Fields, remembered: Fields) -> Tensor:
    """Mean squared difference of each layer's features, then the mean over layers."""
    each = [F.mse_loss(features[name].float(), remembered[name].float()) for name in remembered]
    return torch.stack(each).mean()
