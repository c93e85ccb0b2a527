"""Gradients of rows that were looked at apart, put end to end.

Behind ``x[a:b]`` stands a gradient of all rows of x, which is zero around those from a to b, and autograd adds up what
comes from several such views. Where these are all the rows, none of them twice, the sum is the pieces end to end, plus
the zeros: they make 0 of -0, as the sum does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.training.recording import Call, Recording, Value, storage

aten = torch.ops.aten


class Piece(NamedTuple):
    """The gradient of some rows, from ``start`` to ``end``."""

    start: int
    end: int
    gradient: Value


class Sum(NamedTuple):
    """What lies in such pieces, on tensors of ``sizes``, by the places of the calls that make and add them up."""

    sizes: list[int]
    pieces: list[Piece]
    places: list[int]


def with_joined_rows(recording: Recording) -> Recording:
    """The same with one concatenation and one sum for the gradients of all rows."""
    tensors, calls = list(recording.tensors), list[Call | None](recording.calls)
    for result, found in _sums(recording).items():
        pieces = sorted(found.pieces)
        if not _are_all_rows(pieces, found.sizes[0]) or _written_meanwhile(recording, found):
            continue
        for place in found.places:
            calls[place] = None
        joined = Value(len(tensors))
        tensors.append(torch.cat([tensors[each.gradient.number] for each in pieces]))
        together = Call(aten.cat.default, ([each.gradient for each in pieces],), {}, joined)
        calls[found.places[-1]] = together
        calls.insert(found.places[-1] + 1, Call(aten.add.Tensor, (joined, 0), {}, result))
        return with_joined_rows(_of(recording, calls, tensors))
    return recording


def _of(recording: Recording, calls: list[Call | None], tensors: list[Tensor]) -> Recording:
    return recording._replace(calls=[call for call in calls if call is not None], tensors=tensors)


def _sums(recording: Recording) -> dict[Any, Sum]:
    """The sums of pieces that nobody else reads, by their results: the largest ones."""
    read = recording.reads()
    found: dict[Any, Sum] = {}
    for place, call in enumerate(recording.calls):
        if call.operation is aten.slice_backward.default:
            gradient, sizes, axis, start, end, step = call.arguments
            if (axis, step) == (0, 1) and 0 <= start < end:
                found[call.results] = Sum(sizes, [Piece(start, min(end, sizes[0]), gradient)], [place])
        elif call.operation is aten.add.Tensor and not call.options:
            parts = [found.get(each) for each in call.arguments if isinstance(each, Value) and read[each] == 1]
            known = [each for each in parts if each is not None]
            if len(known) == len(call.arguments) and known[0].sizes == known[1].sizes:
                one, other = known
                found[call.results] = Sum(one.sizes, one.pieces + other.pieces, [*one.places, *other.places, place])
                for each in call.arguments:
                    del found[each]
    return {result: each for result, each in found.items() if len(each.pieces) > 1}


def _are_all_rows(pieces: list[Piece], rows: int) -> bool:
    return (
        (pieces[0].start, pieces[-1].end) == (0, rows)
        and all(one.end == other.start for one, other in pairwise(pieces))
        and all(isinstance(each.gradient, Value) for each in pieces)
    )


def _written_meanwhile(recording: Recording, found: Sum) -> bool:
    """Whether a gradient is changed between the first call that reads it and the last one, which will."""
    tensors = recording.tensors
    gradients = {storage(tensors[each.gradient.number]) for each in found.pieces}
    between = (part for call in recording.calls[min(found.places) : max(found.places)] for part in call.mutated())
    return any(isinstance(part, Value) and storage(tensors[part.number]) in gradients for part in between)
