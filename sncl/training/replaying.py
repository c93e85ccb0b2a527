"""A recording made again, as a function with one line for each call, which torch.fx writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sncl.training.recording import Call, Constant, Recording, Value

aten = torch.ops.aten
PLAIN_SLICE = 4  # arguments: a tensor, its axis, from where to where
DIRECT = {  # the same operations by a shorter way
    aten.mm.default: torch.mm,
    aten.addmm.default: torch.addmm,
    aten.mul.Tensor: torch.mul,
    aten.add.Tensor: torch.add,
    aten.add_.Tensor: Tensor.add_,
    aten.relu.default: torch.relu,
    aten.relu_.default: torch.relu_,
    aten.clamp.default: torch.clamp,
    aten.clamp_.default: torch.clamp_,
    aten.mul_.Tensor: Tensor.mul_,
    aten.t.default: torch.t,
    aten.view.default: torch.reshape,  # of what can be seen in that shape, so nothing is copied
    aten.unsqueeze.default: torch.unsqueeze,
    aten.squeeze.dim: torch.squeeze,
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
        self._run = _function_of(graph_of(recording))

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the recorded computation returns for these inputs, and all that it changes."""
        with torch._C._AutoDispatchBelowAutograd():  # where the calls were recorded
            made: list[Tensor] = self._run(*inputs, *self.recording.constants)
            return made


def _function_of(graph: Graph) -> Callable[..., Any]:
    """The function that torch.fx writes, with the operations themselves under their names."""
    run: Any = GraphModule({}, graph).forward
    names: dict[str, Any] = run.__func__.__globals__
    names.update({name: each.func for name, each in names.items() if isinstance(each, Operation)})
    found: Callable[..., Any] = run
    return found


class Operation(partial[Any]):
    """An operation under a name of its own; of others torch.fx writes the path, to be followed at each call."""

    @classmethod
    def of(cls, call: Call) -> Operation:
        direct: Any = DIRECT.get(call.operation) or getattr(call.operation, "_op", call.operation)
        found = cls(direct)
        found.__name__ = str(call.operation).replace(".", "_")  # type: ignore[attr-defined]
        return found


def _called(call: Call, node: Callable[[Any], Any]) -> tuple[Any, ...]:
    """What is called for an operation, with which arguments and options: rows in a row are sooner seen by index."""
    if call.operation is aten.slice.Tensor and call.arguments[1:2] == (0,) and len(call.arguments) == PLAIN_SLICE:
        return getitem, (node(call.arguments[0]), slice(*call.arguments[2:]))
    options = {name: node(value) for name, value in call.options.items()}
    return Operation.of(call), tuple(map(node, call.arguments)), options


def graph_of(recording: Recording) -> Graph:
    """The calls as a graph of the inputs and constants; values are freed behind the last call that reads them."""
    graph = Graph()
    known: dict[Any, Node] = {Value(each): graph.placeholder(f"given{each}") for each in range(recording.inputs)}
    known |= {Constant(each): graph.placeholder(f"known{each}") for each in range(len(recording.constants))}

    def node(argument: Any) -> Any:
        if isinstance(argument, (Value, Constant)):
            return known[argument]
        return [node(each) for each in argument] if isinstance(argument, (list, tuple)) else argument

    for call in recording.calls:
        made = graph.call_function(*_called(call, node))
        if isinstance(call.results, list):
            for place, each in enumerate(call.results):
                if each is not None:
                    known[each] = graph.call_function(getitem, (made, place))
        elif call.results is not None:
            known.setdefault(call.results, made)  # what is changed in place is known
    graph.output([known[each] for each in recording.returned])
    return graph
