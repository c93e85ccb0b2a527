"""A recording made again, as a function that is written once and has one line for each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sncl.training.recording import Call, Constant, Recording, Value, values_in

aten = torch.ops.aten
DIRECT = {  # the same operations by a shorter way
    aten.mm.default: torch.mm,
    aten.addmm.default: torch.addmm,
    aten.mul.Tensor: torch.mul,
    aten.add.Tensor: torch.add,
    aten.add_.Tensor: Tensor.add_,
    aten.relu.default: torch.relu,
    aten.t.default: torch.t,
    aten.view.default: torch.reshape,  # of what can be seen in that shape, so nothing is copied
    aten.unsqueeze.default: torch.unsqueeze,
    aten.cat.default: torch.cat,
    aten.stack.default: torch.stack,
    aten.index_select.default: torch.index_select,
    aten.mean.default: torch.mean,
    aten.sum.dim_IntList: torch.sum,
    aten._log_softmax.default: torch._log_softmax,
    aten._log_softmax_backward_data.default: torch._log_softmax_backward_data,
    aten._foreach_add_.List: torch._foreach_add_,
}


class CallList:
    """Makes the calls of a recording again, on other inputs."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording._replace(tensors=[])
        self.draws = recording.draws
        self._run = Writer(recording).function()

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the recorded computation returns for these inputs, and all that it changes."""
        if not torch.is_grad_enabled():
            return self._run(*inputs)
        with torch.no_grad():
            return self._run(*inputs)


class Writer:
    """Writes a recording as Python: values are local variables, freed behind the last call that reads them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.names: dict[str, Any] = {}  # of all that is there before

    def function(self) -> Callable[..., list[Tensor]]:
        """A function of the inputs."""
        found = self.recording
        last = {value: place for place, call in enumerate(found.calls) for value in (*call.reads(), *call.makes())}
        last |= dict.fromkeys(values_in(found.returned), len(found.calls))
        lines, made = [], found.inputs
        for place, call in enumerate(found.calls):
            line, made = self._line(call, made)
            freed = [_local(each) for each in {*call.reads(), *call.makes()} if last[each] == place]
            lines += [line, *(f"del {name}" for name in sorted(freed))]
        given = ", ".join(_local(Value(number)) for number in range(found.inputs))
        lines.append(f"return [{', '.join(map(self._word, found.returned))}]")
        exec("\n    ".join((f"def run({given}):", *lines)), self.names)
        function: Callable[..., list[Tensor]] = self.names["run"]
        return function

    def _line(self, call: Call, made: int) -> tuple[str, int]:
        """A call, where values up to the number ``made`` are there; and how many are there behind it."""
        operation = DIRECT.get(call.operation) or getattr(call.operation, "_op", call.operation)
        arguments = [self._word(each) for each in call.arguments]
        arguments += [f"{name}={self._word(value)}" for name, value in call.options.items()]
        line = f"{self._name(operation)}({', '.join(arguments)})"
        new = [each.number for each in call.makes() if each.number >= made]  # what is changed in place is there already
        if new and isinstance(call.results, Value):
            line = f"{_local(call.results)} = {line}"
        elif new:
            line = f"[{', '.join(_local(each) if isinstance(each, Value) else '_' for each in call.results)}] = {line}"
        return line, max([made, *(number + 1 for number in new)])

    def _word(self, argument: Any) -> str:
        """An argument as it is written: what holds no value is there before."""
        if isinstance(argument, Value):
            return _local(argument)
        if isinstance(argument, (list, tuple)) and any(values_in(argument)):
            return f"[{', '.join(map(self._word, argument))}]"
        return self._name(self._constant(argument))

    def _constant(self, argument: Any) -> Any:
        if isinstance(argument, Constant):
            return self.recording.constants[argument.number]
        return [self._constant(each) for each in argument] if isinstance(argument, (list, tuple)) else argument

    def _name(self, known: Any) -> str:
        name = f"known{len(self.names)}"
        self.names[name] = known
        return name


def _local(value: Value) -> str:
    return f"value{value.number}"
