"""Recordings without the calls that change nothing.

No bit of what is computed changes. Left out are results that nobody reads, views that show nothing else, copies of what
nobody reads afterwards, and what is the same numbers every time, as the first gradients of a loss are. What is read for
the last time may be written over by what is computed of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sncl.training.joining import with_joined_rows
from sncl.training.recording import Call, Constant, Recording, Value, is_view, storage

aten = torch.ops.aten
IN_PLACE = {  # operations on each number by itself, and those that leave the result where the number was
    aten.relu.default: aten.relu_.default,
    aten.clamp.default: aten.clamp_.default,
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
}
WITHOUT_AXES = {aten.view.default, aten.squeeze.dim}  # views that may leave out axes of length 1
BY_SHAPE = {aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.new_zeros.default}


def simplified(recording: Recording) -> Recording:
    """The same with fewer calls."""
    for change in (
        _without_transpositions,
        _without_same_views,
        _without_copies,
        _without_kept_axes,
        with_joined_rows,
        _without_fixed,
    ):
        recording = change(recording)
    return _written_over(recording._replace(calls=_needed(recording)))


def _renamed(nested: Any, names: dict[Any, Any]) -> Any:
    if isinstance(nested, (Value, Constant)):
        return names.get(nested, nested)
    if isinstance(nested, (list, tuple)):
        return type(nested)(_renamed(each, names) for each in nested)
    return nested


def _with_names(call: Call, names: dict[Any, Any]) -> Call:
    if not names:
        return call
    options = {key: _renamed(value, names) for key, value in call.options.items()}
    return Call(call.operation, _renamed(call.arguments, names), options, _renamed(call.results, names))


def _changed(recording: Recording, calls: list[Call], names: dict[Any, Any]) -> Recording:
    return recording._replace(calls=calls, returned=_renamed(recording.returned, names))


def _without_transpositions(recording: Recording) -> Recording:
    """The transposition of a transposition is the value itself."""
    kept: list[Call] = []
    names: dict[Any, Any] = {}
    origin: dict[Any, Any] = {}  # of what was transposed
    for each in recording.calls:
        call = _with_names(each, names)
        if call.operation is aten.t.default:
            source = call.arguments[0]
            if source in origin:
                names[call.results] = origin[source]
                continue
            origin[call.results] = source
        kept.append(call)
    return _changed(recording, kept, names)


def _without_same_views(recording: Recording) -> Recording:
    """A view of all of a value that has its shape and strides is the value itself."""
    kept: list[Call] = []
    names: dict[Any, Any] = {}
    for each in recording.calls:
        call = _with_names(each, names)
        source = call.arguments[0] if call.arguments else None
        if (
            is_view(call.operation)
            and isinstance(source, Value)
            and isinstance(call.results, Value)
            and _place(recording.tensors[source.number]) == _place(recording.tensors[call.results.number])
        ):
            names[call.results] = source
        else:
            kept.append(call)
    return _changed(recording, kept, names)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """How a tensor lies in its storage, and which that is."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), storage(tensor)


def _without_copies(recording: Recording) -> Recording:
    """A copy in a tensor of its own, with the same strides, of a value that nobody reads afterwards, is that value.

    Autograd makes one of every gradient that somebody else holds, which here is the recorder alone.
    """
    last = {value: place for place, call in enumerate(recording.calls) for value in call.reads()}
    last |= dict.fromkeys((each for each in recording.returned if isinstance(each, Value)), len(recording.calls))
    kept: list[Call] = []
    names: dict[Any, Any] = {}
    for place, each in enumerate(recording.calls):
        call = _with_names(each, names)
        if kept and _is_copy_of(kept[-1], call, recording.tensors) and last[each.arguments[1]] == place:
            kept.pop()
            names[call.results] = call.arguments[1]
        else:
            kept.append(call)
    return _changed(recording, kept, names)


def _is_copy_of(empty: Call, copy: Call, tensors: Sequence[Tensor]) -> bool:
    """Whether a value is copied into a tensor that was made just for that, and lies there as it did."""
    if copy.operation is not aten.copy_.default or empty.operation is not aten.new_empty_strided.default:
        return False
    target, source = copy.arguments[:2]
    if target != empty.results or source != empty.arguments[0] or not isinstance(source, Value):
        return False
    ours, theirs = tensors[target.number], tensors[source.number]
    return (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())


def _without_kept_axes(recording: Recording) -> Recording:
    """A sum that keeps its axes, read only to be seen without them, is the sum without them.

    The gradient of a bias is one, and that of whatever else was broadcast over samples.
    """
    tensors, calls, read = recording.tensors, recording.calls, recording.reads()
    sums: dict[Any, int] = {call.results: place for place, call in enumerate(calls) if _keeps_axes(call)}
    kept: list[Call | None] = list(calls)
    for place, call in enumerate(calls):
        source: Any = call.arguments[0] if call.operation in WITHOUT_AXES else None
        if source in sums and read[source] == 1:
            total = calls[sums[source]]
            summed, axes = total.arguments[:2]
            seen, plain = tensors[call.results.number], tensors[summed.number].sum(axes)
            if (seen.shape, seen.stride()) == (plain.shape, plain.stride()):
                kept[sums[source]] = total._replace(arguments=(summed, axes), results=call.results)
                kept[place] = None
    return recording._replace(calls=[call for call in kept if call is not None])


def _keeps_axes(call: Call) -> bool:
    return (
        call.operation is aten.sum.dim_IntList
        and call.arguments[2:] == (True,)
        and isinstance(call.arguments[0], Value)
    )


def _without_fixed(recording: Recording) -> Recording:
    """What depends on shapes alone is a constant, unless somebody writes into it or gets it."""
    returned = {storage(recording.tensors[each.number]) for each in recording.returned if isinstance(each, Value)}
    taken = returned | recording.changed()
    constants = list(recording.constants)
    names: dict[Any, Any] = {}
    kept: list[Call] = []
    for call in recording.calls:
        made = call.makes()
        if _is_fixed(call, names) and not taken.intersection(storage(recording.tensors[each.number]) for each in made):
            for each in made:
                names[each] = Constant(len(constants))
                constants.append(recording.tensors[each.number])
        else:
            kept.append(_with_names(call, names))
    return _changed(recording._replace(constants=constants), kept, names)


def _is_fixed(call: Call, fixed: dict[Any, Any]) -> bool:
    """Whether a call makes the same numbers every time, of nothing but what is fixed."""
    if call.mutates or call.draws:
        return False
    if call.operation in BY_SHAPE:
        return True
    reads = call.reads()
    return bool(reads) and all(each in fixed for each in reads) and not _reads_constants(call)


def _reads_constants(call: Call) -> bool:
    """Whether a call reads a tensor that is there all the time, and may change."""

    def inside(nested: Any) -> bool:
        return isinstance(nested, Constant) or (isinstance(nested, (list, tuple)) and any(map(inside, nested)))

    return inside(call.arguments) or inside(list(call.options.values()))


def _needed(recording: Recording) -> list[Call]:
    """Those calls that change a tensor, draw random numbers, or make what others need."""
    needed = set(recording.returned)
    kept: list[Call] = []
    for call in reversed(recording.calls):
        if call.mutates or call.draws or needed.intersection(call.makes()):
            needed.update(call.reads())
            kept.append(call)
    return kept[::-1]


def _written_over(recording: Recording) -> Recording:
    """What is read for the last time, also by another name, takes the result of the operation that reads it."""
    tensors = recording.tensors
    others = [tensors[each.number] for each in recording.returned if isinstance(each, Value)]
    kept = {storage(each) for each in (*tensors[: recording.inputs], *recording.constants, *others)}
    reads = ((place, each) for place, call in enumerate(recording.calls) for each in call.reads())
    last = {storage(tensors[each.number]): place for place, each in reads}
    free = {(where, place) for where, place in last.items() if where not in kept}
    calls = [
        call._replace(operation=IN_PLACE[call.operation]) if _may_overwrite(call, tensors, free, place) else call
        for place, call in enumerate(recording.calls)
    ]
    return recording._replace(calls=calls)


def _may_overwrite(call: Call, tensors: Sequence[Tensor], free: set[tuple[int, int]], place: int) -> bool:
    """Whether the first argument of a call is free behind it, has the form of the result, and is read just once."""
    if call.operation not in IN_PLACE or not isinstance(call.arguments[0], Value):
        return False
    first, *others = (tensors[each.number] for each in call.reads())
    result = tensors[call.results.number]
    return (
        (storage(first), place) in free
        and (first.dtype, first.shape, first.stride()) == (result.dtype, result.shape, result.stride())
        and all(storage(each) != storage(first) for each in others)
    )
