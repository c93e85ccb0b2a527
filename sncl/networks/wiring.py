"""What follows what in a network, read off the autograd graph of one forward pass.

The output of every leaf module is marked; walking the graph back from a tensor finds the modules it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.networks.taps import call, evaluating, first, layer
from sncl.tensors.fields import Inputs, rows

CONVOLUTION = nn.modules.conv._ConvNd
BATCHNORM = nn.modules.batchnorm._BatchNorm
NORMS = (BATCHNORM, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_NO_NEURONS = (*NORMS, nn.Embedding, nn.EmbeddingBag, nn.PReLU, nn.RNNBase, nn.RNNCellBase)
# Autograd nodes that keep every channel in its place; walking back passes through them.
JOINING = ("Add", "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "NativeDropout", "Clone")
SCALING = ("Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Hardswish", "Hardtanh", "Mul", "MaxPool", "AvgPool", "Mean")
_SHAPING = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Div", "LogSoftmax", "Softmax")
_MOVING = ("Index", "Gather", "Permute", "Transpose", "Expand", "Split", "Unbind", "ToCopy", "T")
TO_LOGITS = (*JOINING, *_SHAPING, *_MOVING, "Mul", "Mean")
_ATTENTION = ("ScaledDotProduct", "Softmax")


class ModuleCall(NamedTuple):
    """One call of a module in the forward pass."""

    module: nn.Module
    source: Any  # autograd node of the first input
    input_shape: torch.Size  # of the first input
    node: Any  # autograd node of the output
    shape: torch.Size  # of the output
    changes: bool  # the output is another tensor of the same shape

    def makes_neurons(self) -> bool:
        """A leaf with a matrix one side of which is its output's channels: also a linear layer of a library's own."""
        module = self.module
        if isinstance(module, CONVOLUTION):
            return True
        matrices = [] if any(module.children()) else [each for each in module.parameters() if each.dim() == 2]
        return not isinstance(module, _NO_NEURONS) and any(self.shape[-1] in matrix.shape for matrix in matrices)


class _Recorder:
    """Hooks that record the calls of a module; the input's node before an in-place module can change it."""

    def __init__(self) -> None:
        self.calls: list[ModuleCall] = []
        self.source: Any = None
        self.input_shape = torch.Size()

    def before(self, module: nn.Module, inputs: Any) -> None:
        given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
        self.source, self.input_shape = (None, torch.Size()) if given is None else (given.grad_fn, given.shape)

    def after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        output = first(output)
        if isinstance(output, Tensor) and output.grad_fn is not None:
            changes = self.input_shape == output.shape and self.source is not output.grad_fn
            self.calls.append(ModuleCall(module, self.source, self.input_shape, output.grad_fn, output.shape, changes))


class Wiring:
    """What one forward pass shows of a network: the calls of its modules, and how they are connected.

    ``named`` are modules to record beside the leaves.
    """

    def __init__(self, net: nn.Module, example: Inputs, named: tuple[str, ...] = ()) -> None:
        watched = {
            name: module
            for name, module in net.named_modules()
            if name and (not any(module.children()) or isinstance(module, BATCHNORM))
        }
        watched |= {name: layer(net, name) for name in named}
        self.trained = {name for name, module in watched.items() if any(p.requires_grad for p in module.parameters())}
        with _recording(watched) as recorders, _nothing_frozen(net), evaluating(net), torch.enable_grad():
            self.output = call(net, example).grad_fn
        self.rows = rows(example)
        self.nodes = _ancestors(self.output)
        self.calls = {  # those that the logits depend on, and those asked for
            name: recorder.calls
            for name, recorder in recorders.items()
            if recorder.calls and (name in named or any(made.node in self.nodes for made in recorder.calls))
        }
        self.neurons = {made.node: name for name, calls in self.calls.items() for made in calls if made.makes_neurons()}
        self.logits = reached(self.output, self.neurons, TO_LOGITS)
        self.attention = self._attended()

    def _attended(self) -> set[str]:
        """The neurons that attention reads."""
        attention = [node for node in self.nodes if node.name().startswith(_ATTENTION)]
        read = [parent for node in attention for parent, _ in node.next_functions]
        return set().union(*(reached(parent, self.neurons, (*TO_LOGITS, "Bmm", "Mm")) for parent in read))

    def finished_by(self, name: str) -> set[str]:
        """The neurons that the module of that name finishes; none where its calls finish different ones."""
        sets = [reached(each.source, self.neurons, JOINING) for each in self.calls[name]]
        return sets[0] if all(each == sets[0] for each in sets) else set()

    def is_convolution(self, name: str) -> bool:
        return isinstance(self.calls[name][0].module, CONVOLUTION)

    def by_row(self, name: str, shape: torch.Size) -> bool:
        """Whether a module runs once, on tensors whose first axis is that of the samples."""
        return len(self.calls[name]) == 1 and shape[0] == self.rows


@contextmanager
def _recording(watched: dict[str, nn.Module]) -> Iterator[dict[str, _Recorder]]:
    recorders = {name: _Recorder() for name in watched}
    handles = []
    for name, module in watched.items():
        handles.append(module.register_forward_pre_hook(recorders[name].before))
        handles.append(module.register_forward_hook(recorders[name].after))
    try:
        yield recorders
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _nothing_frozen(net: nn.Module) -> Iterator[None]:
    """Let frozen parameters appear in the graph, too."""
    frozen = [value for value in net.parameters() if not value.requires_grad and value.is_floating_point()]
    try:
        for value in frozen:
            value.requires_grad_(True)
        yield
    finally:
        for value in frozen:
            value.requires_grad_(False)


def _ancestors(output: Any) -> dict[Any, None]:
    """Every autograd node that the logits come from."""
    waiting, visited = [output], dict[Any, None]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited[node] = None
            waiting.extend(parent for parent, _ in node.next_functions)
    return visited


def reached(start: Any, marked: dict[Any, str], through: tuple[str, ...]) -> set[str]:
    """The marked module outputs found by walking back from ``start`` through nodes of the given kinds."""
    found: set[str] = set()
    waiting, visited = [start], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if node in marked:
            found.add(marked[node])
        elif node.name().startswith(through):
            waiting.extend(parent for parent, _ in node.next_functions)
    return found
