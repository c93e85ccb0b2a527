"""Named tensors with a common first axis: a batch, a replayed batch and the memory are all ``Fields``."""

from __future__ import annotations

from torch import Tensor

Fields = dict[str, Tensor]


def rows(fields: Fields) -> int:
    """The length of the common first axis."""
    return next(iter(fields.values())).shape[0]


def under(prefix: str, fields: Fields) -> Fields:
    """Name every tensor ``prefix/name``: how a group of tensors (features, a state) lies inside another."""
    return {f"{prefix}/{name}": tensor for name, tensor in fields.items()}


def within(prefix: str, fields: Fields) -> Fields:
    """The tensors named ``prefix/name``, by their own name: the inverse of :func:`under`."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in fields.items() if name.startswith(start)}
