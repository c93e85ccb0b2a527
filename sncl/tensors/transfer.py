"""Small tensors from the host to the device without waiting."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(value: Tensor, device: torch.device) -> Tensor:
    """``value`` on ``device``, by way of pinned memory if that is a GPU: a copy from any other waits for it first."""
    if value.device == device:
        return value
    if device.type == "cuda" and value.device.type == "cpu":
        value = value.pin_memory()
    return value.to(device, non_blocking=True)
