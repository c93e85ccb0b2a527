"""A recording made again, as a list of calls that is gone through from the first to the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.training.recording import Constant, Recording, Value

aten = torch.ops.aten
DIRECT = {  # the same operations by a shorter way
    aten.mm.default: torch.mm,
    aten.addmm.default: torch.addmm,
    aten.mul.Tensor: torch.mul,
    aten.add.Tensor: torch.add,
    aten.relu.default: torch.relu,
    aten.t.default: torch.t,
    aten.cat.default: torch.cat,
    aten.index_select.default: torch.index_select,
    aten.sum.dim_IntList: torch.sum,
    aten._log_softmax.default: torch._log_softmax,
    aten._foreach_add_.List: torch._foreach_add_,
}

Place = tuple[Any, Any]  # a list or dictionary of arguments, and where in it


class Prepared(NamedTuple):
    """A call with its arguments, into which the results of earlier calls are put."""

    operation: Any
    arguments: list[Any]
    options: dict[str, Any]
    one: list[Place]  # where its result goes
    several: list[list[Place]]  # where each of its results goes, if it has several


class CallList:
    """Makes the calls of a recording again, on other inputs."""

    def __init__(self, recording: Recording) -> None:
        self.draws = recording.draws
        self._constants = recording.constants
        self._places: list[list[Place]] = [[] for _ in recording.tensors]  # where each value is read
        self._calls: list[Prepared] = []
        made = recording.inputs
        for call in recording.calls:
            arguments = self._filled([None] * len(call.arguments), enumerate(call.arguments))
            options = self._filled({}, call.options.items())
            new = [each for each in call.makes() if each.number >= made]  # what is changed in place is known already
            one = self._places[call.results.number] if new and isinstance(call.results, Value) else []
            several = [
                self._places[each.number] if isinstance(each, Value) else []
                for each in (call.results if new and isinstance(call.results, list) else [])
            ]
            made = max([made, *(each.number + 1 for each in new)])
            operation = DIRECT.get(call.operation) or getattr(call.operation, "_op", call.operation)
            self._calls.append(Prepared(operation, arguments, options, one, several))
        self._returned = self._filled([None] * len(recording.returned), enumerate(recording.returned))
        self._inputs = self._places[: recording.inputs]

    def _filled(self, target: Any, arguments: Any) -> Any:
        """Arguments put into ``target``, with empty places where values will be."""
        for place, argument in arguments:
            if isinstance(argument, Value):
                self._places[argument.number].append((target, place))
                target[place] = None
            elif isinstance(argument, Constant):
                target[place] = self._constants[argument.number]
            elif isinstance(argument, (list, tuple)):
                target[place] = self._filled([None] * len(argument), enumerate(argument))
            else:
                target[place] = argument
        return target

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the recorded computation returns for these inputs, and all that it changes."""
        for value, places in zip(inputs, self._inputs, strict=True):
            for target, place in places:
                target[place] = value
        for operation, arguments, options, one, several in self._calls:
            result = operation(*arguments, **options)
            for target, place in one:
                target[place] = result
            if several:
                for value, places in zip(result, several, strict=True):
                    for target, place in places:
                        target[place] = value
        return list(self._returned)
