"""Named tensors with a common first axis: a batch, a replayed batch and the memory are all ``Fields``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Fields = dict[str, Tensor]


def rows(fields: Fields) -> int:
    """The length of the common first axis."""
    return next(iter(fields.values())).shape[0]


def end_to_end(parts: Sequence[Tensor]) -> Tensor:
    """``torch.cat``, without the copy where the parts are the pieces of one tensor, in order."""
    whole = parts[0]._base if not torch.compiler.is_compiling() else None
    if whole is None or whole.shape[0] != sum(part.shape[0] for part in parts) or not whole.is_contiguous():
        return torch.cat(list(parts))
    start = whole.data_ptr()
    for part in parts:
        if part._base is not whole or part.data_ptr() != start or part.shape[1:] != whole.shape[1:]:
            return torch.cat(list(parts))
        start += part.numel() * part.element_size()
    return whole


def under(prefix: str, fields: Fields) -> Fields:
    """Name every tensor ``prefix/name``: how a group of tensors (features, a state) lies inside another."""
    return {f"{prefix}/{name}": tensor for name, tensor in fields.items()}


def within(prefix: str, fields: Fields) -> Fields:
    """The tensors named ``prefix/name``, by their own name: the inverse of :func:`under`."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in fields.items() if name.startswith(start)}
