"""The signature of a network's inputs: names, shapes and types, as the first batch had them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.taps import call, evaluating
from sncl.streams.transforms import Identity, Transform
from sncl.tensors.fields import Fields, Inputs, inputs, mapped, named, rows
from sncl.training.inputs import Samples, called, has_gaps, is_plain, refuse_gaps, short


class Signature(NamedTuple):
    """What inputs must look like: ``example`` holds up to two samples of the first batch, on the learner's device."""

    example: Fields

    def description(self) -> dict[str, Any]:
        """Shape and type of each input, as plain data."""
        return {name: [list(value.shape), short(value.dtype)] for name, value in self.example.items()}

    def fits(self, x: Samples) -> TypeGuard[Tensor]:
        """Whether :meth:`checked` would return these samples as they are: the usual case, seen at a short look."""
        first = self.example.get("x")
        return (
            first is not None
            and is_plain(x)
            and x.dtype is first.dtype
            and x.dim() == first.dim()
            and x.shape[1:] == first.shape[1:]
            and x.shape[0] > 0
            and first.is_cpu
            and not has_gaps(x)
        )

    def checked(self, x: Inputs) -> Inputs:
        """Inputs like those of the first batch, in its precision, or an error in words."""
        if isinstance(x, Tensor) and "x" in self.example:
            return self._checked("x", x)
        given = named(x)
        if given.keys() != self.example.keys():
            now, first = (", ".join(map(called, names)) for names in (given, self.example))
            raise SnclError(f"the inputs are {now}, but in the first batch they were {first}")
        return inputs({name: self._checked(name, value) for name, value in given.items()})

    def _checked(self, name: str, x: Tensor) -> Tensor:
        first = self.example[name]
        if x.dtype != first.dtype and x.is_floating_point() and first.is_floating_point():
            x = x.to(first.dtype)
        if x.shape[1:] != first.shape[1:] or x.dtype != first.dtype:
            one = ", ".join(["rows", *map(str, first.shape[1:])])
            what = "inputs have" if name == "x" else f"{called(name)} has"
            hint = "; pad sequences to one length" if first.dtype == torch.int64 and x.dim() == first.dim() > 1 else ""
            raise SnclError(
                f"{what} the shape [{one}] and the type {short(first.dtype)}, as in the first batch; got "
                f"{list(x.shape)} and {short(x.dtype)}{hint}"
            )
        if first.device.type == "cpu":  # to ask a GPU would stall it
            refuse_gaps(x)
        return x


def described_zeros(description: dict[str, Any]) -> Fields:
    """Inputs of the described shapes and types: the inverse of :meth:`Signature.description`, but for the values."""
    return {name: torch.zeros(shape, dtype=getattr(torch, dtype)) for name, (shape, dtype) in description.items()}


def first_samples(x: Inputs, transform: Transform, net: nn.Module, device: torch.device) -> Inputs:
    """A copy of two samples on the device; without a transform, real numbers in the precision of the network."""
    precision = next(net.parameters()).dtype if isinstance(transform, Identity) else None

    def first(part: Tensor) -> Tensor:
        part = part[:2].to(device, copy=True)
        return part.to(precision) if part.is_floating_point() and precision is not None else part

    return mapped(first, x)


def try_network(net: nn.Module, x: Inputs, seen: Inputs) -> None:
    """Run the network once on the first samples as the transform shows them, and say in words what does not fit."""
    with evaluating(net), torch.no_grad():
        try:
            logits = call(net, seen)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            what = str(error).strip().partition("\n")[0]
            given = ", ".join(
                f"{'' if name == 'x' else called(name) + ' of '}the shape {list(value.shape[1:])} and the type "
                f"{short(value.dtype)}"
                for name, value in named(x).items()
            )
            raise SnclError(f"the network {type(net).__name__} cannot take inputs of {given} a row: {what}") from error
    if logits.dim() != 2 or logits.shape[0] != rows(seen):
        raise SnclError(
            f"the network returns logits [rows, classes], one row for each input; it returned {list(logits.shape)}"
        )
