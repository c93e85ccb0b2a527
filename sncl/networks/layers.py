"""Find where a network's neurons are: the places a gate may stand on, in any ``nn.Module``.

A neuron is a channel that a linear map or a convolution produces. Its gate belongs where the neuron is finished:
behind the normalisation and the nonlinearity that follow, and on the residual *sum* instead of one of its branches,
so that a closed gate silences the channel. Two places are never gated: the logits, and anything a BatchNorm reads
(it would divide the gate's scale out again).

What follows what is read off one forward pass, from the autograd graph: module outputs are marked, then the graph is
walked back from each nonlinearity, each BatchNorm and the logits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.taps import Tapped, evaluating

_NEURONS = (nn.Linear, nn.modules.conv._ConvNd)
_BATCHNORM = nn.modules.batchnorm._BatchNorm
_NO_ACTIVATION = (nn.Dropout, nn.Softmax, nn.LogSoftmax, nn.Identity, nn.Flatten)
# Autograd nodes that keep every channel in its place; walking back passes through them.
_JOINING = ("Add", "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "NativeDropout", "Clone")
_SCALING = ("Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Hardswish", "Hardtanh", "Mul", "MaxPool", "AvgPool", "Mean")
_SHAPING = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Div", "LogSoftmax", "Softmax")
_TO_LOGITS = (*_JOINING, *_SHAPING, "Mul", "Mean")


class Site(NamedTuple):
    """One layer whose output channels can be gated: its name, how many channels, and on which axis they lie."""

    name: str
    channels: int
    axis: int


class _Call(NamedTuple):
    module: nn.Module
    source: Any  # autograd node of the first input
    node: Any  # autograd node of the output
    shape: torch.Size
    changes: bool  # the output is another tensor of the same shape


class _Recorder:
    """Notes the autograd nodes a leaf module connects; the input's before an in-place module can change it."""

    def __init__(self, calls: list[_Call]) -> None:
        self.calls = calls
        self.source: Any = None

    def before(self, module: nn.Module, inputs: Any) -> None:
        self.source = inputs[0].grad_fn if inputs and isinstance(inputs[0], Tensor) else None

    def after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.grad_fn is not None:
            same_shape = bool(inputs) and isinstance(inputs[0], Tensor) and inputs[0].shape == output.shape
            changes = same_shape and self.source is not output.grad_fn
            self.calls.append(_Call(module, self.source, output.grad_fn, output.shape, changes))


def _trace(net: nn.Module, example: Any) -> tuple[dict[str, _Call], Any]:
    """Every leaf module that runs exactly once, and the autograd node of the network's output."""
    calls: dict[str, list[_Call]] = {}
    handles = []
    for name, module in net.named_modules():
        if name and next(module.children(), None) is None:
            recorder = _Recorder(calls.setdefault(name, []))
            handles.append(module.register_forward_pre_hook(recorder.before))
            handles.append(module.register_forward_hook(recorder.after))
    with evaluating(net), torch.enable_grad():
        try:
            output = net(example)
        finally:
            for handle in handles:
                handle.remove()
    node = output.grad_fn if isinstance(output, Tensor) else None
    return {name: made[0] for name, made in calls.items() if len(made) == 1}, node


def _reached(start: Any, marked: dict[Any, str], through: tuple[str, ...]) -> set[str]:
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


def _is_activation(call: _Call) -> bool:
    plain = next(call.module.parameters(), None) is None or isinstance(call.module, nn.PReLU)
    return plain and call.changes and not isinstance(call.module, (*_NO_ACTIVATION, _BATCHNORM))


def _neurons(calls: dict[str, _Call]) -> dict[Any, str]:
    return {call.node: name for name, call in calls.items() if isinstance(call.module, _NEURONS)}


def logit_layers(net: nn.Module, example: Any) -> set[str]:
    """The linear maps and convolutions whose channels are the logits, or are added up to them."""
    calls, output = _trace(net, example)
    return _reached(output, _neurons(calls), (*_TO_LOGITS, "AvgPool", "AdaptiveAvgPool"))


def find_sites(net: nn.Module, example: Any) -> list[Site]:
    """The places of ``net`` where gates belong, in the order of its modules; ``example`` is a small input batch."""
    calls, output = _trace(net, example)
    neurons = _neurons(calls)
    logits = _reached(output, neurons, _TO_LOGITS)

    finished = {  # where neurons are finished -> those neurons
        name: _reached(call.source, neurons, _JOINING) for name, call in calls.items() if _is_activation(call)
    }
    if not any(finished.values()):  # nonlinearities are plain functions here: gate the linear map itself
        finished = {name: {name} for name in neurons.values()}
    covered_so_far = set().union(*finished.values())
    ends = {calls[name].node: name for name in finished}
    ends |= {node: name for node, name in neurons.items() if name not in covered_so_far}
    read_by_norm: set[str] = set()
    for name, call in calls.items():
        if isinstance(call.module, _BATCHNORM):  # what it reads is finished behind it
            read = _reached(call.source, ends, _JOINING + _SCALING)
            read_by_norm |= read
            finished[name] = set().union(*(finished.get(each, {each}) for each in read))

    sites = []
    for name, module in net.named_modules():
        covered = finished.get(name, set())
        if covered and not covered & logits and name not in read_by_norm:
            convolution = isinstance(calls[min(covered)].module, nn.modules.conv._ConvNd)
            axis = 1 if convolution or isinstance(module, _BATCHNORM) else -1
            sites.append(Site(name, calls[name].shape[axis], axis))
    if not sites:
        raise SnclError("found no hidden layer to gate in this network; name the layers in layers=")
    return sites


def named_sites(net: nn.Module, example: Any, layers: tuple[str, ...]) -> list[Site]:
    """Sites on layers chosen by name: channels lie on axis 1 of images and on the last axis of everything else."""
    probe = Tapped(net, layers)
    with evaluating(net), torch.no_grad():
        try:
            features = probe(example).features
        finally:
            probe.remove()
    missing = [name for name in layers if name not in features]
    if missing:
        raise SnclError(f"layer {missing[0]!r} did not run in a forward pass; name another in layers=")
    axes = {name: 1 if feature.dim() == 4 else -1 for name, feature in features.items()}
    return [Site(name, features[name].shape[axes[name]], axes[name]) for name in layers]
