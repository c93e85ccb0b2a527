"""Named tensors with a common first axis: a batch, a replayed batch and the memory are all ``Fields``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Fields = dict[str, Tensor]
Inputs = Tensor | Fields  # what a network reads: one tensor, or several by name, which are its keyword arguments


def rows(fields: Inputs) -> int:
    """The length of the common first axis."""
    return fields.shape[0] if isinstance(fields, Tensor) else next(iter(fields.values())).shape[0]


def _end_to_end(parts: Sequence[Tensor]) -> Tensor:
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


def named(x: Inputs) -> Fields:
    """Inputs as fields of a batch: ``x``, or one ``x/name`` for each of several."""
    return {"x": x} if isinstance(x, Tensor) else under("x", x)


def inputs(fields: Fields) -> Inputs:
    """The inputs among the fields of a batch: the inverse of :func:`named`."""
    return fields["x"] if "x" in fields else within("x", fields)


def mapped(change: Callable[[Tensor], Tensor], x: Inputs) -> Inputs:
    """The same change made to every tensor of the inputs."""
    return change(x) if isinstance(x, Tensor) else {name: change(tensor) for name, tensor in x.items()}


def picked(x: Inputs, which: Tensor) -> Inputs:
    """Some samples of the inputs, by their numbers."""
    return mapped(lambda tensor: tensor[which], x)


def pieces(x: Inputs, sizes: int | list[int]) -> Sequence[Inputs]:
    """The samples in pieces, as ``Tensor.split`` makes them."""
    if isinstance(x, Tensor):
        parts: Sequence[Tensor] = x.split(sizes)
        return parts
    each = zip(*(tensor.split(sizes) for tensor in x.values()), strict=True)
    return [dict(zip(x, piece, strict=True)) for piece in each]


def end_to_end(parts: Sequence[Inputs]) -> Inputs:
    """``torch.cat``, without the copy where the parts are the pieces of one tensor, in order."""
    each = [named(part) for part in parts]
    return inputs({name: _end_to_end([part[name] for part in each]) for name in each[0]})
