"""The terms that methods add up. Each is the mean over rows, as in the literature these weights come from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sncl.tensors.fields import Fields


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
