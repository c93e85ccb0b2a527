"""Find where a network's neurons are: the places a gate may stand on, in any ``nn.Module``.

A neuron is a channel that a linear map or a convolution produces. Its gate belongs where the neuron is finished:
behind the normalisation and the nonlinearity that follow, and on the residual *sum* instead of one of its branches,
so that a closed gate silences the channel. Never gated are the logits, anything a BatchNorm reads (it would divide the
gate's scale out again), what a depthwise convolution carries on (its own channels are gated instead), the factors of
squeeze and excitation, what attention reads, and neurons that are frozen.

What follows what is read off one forward pass, from the autograd graph: module outputs are marked, then the graph is
walked back from each nonlinearity, each BatchNorm and the logits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.taps import INPUT, call, evaluating, first, layer
from sncl.tensors.fields import Inputs, rows

_CONVOLUTION = nn.modules.conv._ConvNd
_BATCHNORM = nn.modules.batchnorm._BatchNorm
_NORMS = (_BATCHNORM, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_NO_NEURONS = (*_NORMS, nn.Embedding, nn.EmbeddingBag, nn.PReLU, nn.RNNBase, nn.RNNCellBase)
_NO_ACTIVATION = (*_NORMS, nn.Dropout, nn.Softmax, nn.LogSoftmax, nn.Identity, nn.Flatten)
_FACTORS = (nn.Sigmoid, nn.Hardsigmoid)  # of squeeze and excitation, where they are multiplied with something
# Autograd nodes that keep every channel in its place; walking back passes through them.
_JOINING = ("Add", "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "NativeDropout", "Clone")
_SCALING = ("Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Hardswish", "Hardtanh", "Mul", "MaxPool", "AvgPool", "Mean")
_SHAPING = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Div", "LogSoftmax", "Softmax")
_MOVING = ("Index", "Gather", "Permute", "Transpose", "Expand", "Split", "Unbind", "ToCopy", "T")
_TO_LOGITS = (*_JOINING, *_SHAPING, *_MOVING, "Mul", "Mean")
# Nonlinearities that are functions, not modules: of zero they make zero, so a gate may stand in front of them.
_FUNCTIONS = ("Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Hardswish", "Hardtanh", "Tanh", "Mish")
_ATTENTION = ("ScaledDotProduct", "Softmax")
SHOWN = 20  # names in an error


class Site(NamedTuple):
    """One layer whose output channels can be gated: its name, how many channels, and on which axis they lie.

    ``by_row``: it runs once, and its first axis is that of the rows, so that it is a feature that can be replayed.
    """

    name: str
    channels: int
    axis: int
    by_row: bool = True


class _Call(NamedTuple):
    module: nn.Module
    source: Any  # autograd node of the first input
    read: torch.Size  # shape of the first input
    node: Any  # autograd node of the output
    shape: torch.Size
    changes: bool  # the output is another tensor of the same shape


class _Recorder:
    """Notes the autograd nodes a module connects; the input's before an in-place module can change it."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.source: Any = None
        self.read = torch.Size()

    def before(self, module: nn.Module, inputs: Any) -> None:
        given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
        self.source, self.read = (None, torch.Size()) if given is None else (given.grad_fn, given.shape)

    def after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        output = first(output)
        if isinstance(output, Tensor) and output.grad_fn is not None:
            changes = self.read == output.shape and self.source is not output.grad_fn
            self.calls.append(_Call(module, self.source, self.read, output.grad_fn, output.shape, changes))


class _Wiring:
    """What one forward pass shows of a network: the calls of its modules, and how they are connected."""

    def __init__(self, net: nn.Module, example: Inputs, named: tuple[str, ...] = ()) -> None:
        watched = {
            name: module
            for name, module in net.named_modules()
            if name and (not any(module.children()) or isinstance(module, _BATCHNORM))
        }
        watched |= {name: layer(net, name) for name in named}
        recorders = {name: _Recorder() for name in watched}
        handles = []
        for name, module in watched.items():
            handles.append(module.register_forward_pre_hook(recorders[name].before))
            handles.append(module.register_forward_hook(recorders[name].after))
        frozen = [value for value in net.parameters() if not value.requires_grad and value.is_floating_point()]
        self.trained = {name for name, module in watched.items() if any(p.requires_grad for p in module.parameters())}
        with evaluating(net), torch.enable_grad():
            try:
                for value in frozen:  # so that the graph shows them too
                    value.requires_grad_(True)
                self.output = call(net, example).grad_fn
            finally:
                for value in frozen:
                    value.requires_grad_(False)
                for handle in handles:
                    handle.remove()
        self.rows = rows(example)
        self.nodes = _ancestors(self.output)
        self.calls = {  # those that the logits depend on, and those asked for
            name: recorder.calls
            for name, recorder in recorders.items()
            if recorder.calls and (name in named or any(made.node in self.nodes for made in recorder.calls))
        }
        self.neurons = {made.node: name for name, calls in self.calls.items() for made in calls if _makes_neurons(made)}
        self.logits = reached(self.output, self.neurons, _TO_LOGITS)
        self.attention = set().union(
            *(
                reached(parent, self.neurons, (*_TO_LOGITS, "Bmm", "Mm"))
                for node in self.nodes
                if node.name().startswith(_ATTENTION)
                for parent, _ in node.next_functions
            )
        )

    def behind(self, name: str) -> set[str]:
        """The neurons that the module of that name finishes; none where its calls finish different ones."""
        sets = [reached(each.source, self.neurons, _JOINING) for each in self.calls[name]]
        return sets[0] if all(each == sets[0] for each in sets) else set()

    def is_convolution(self, name: str) -> bool:
        return isinstance(self.calls[name][0].module, _CONVOLUTION)

    def site(self, name: str, axis: int) -> Site:
        calls = self.calls[name]
        shape = calls[0].shape
        return Site(name, shape[axis], axis, len(calls) == 1 and shape[0] == self.rows)


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


def _makes_neurons(made: _Call) -> bool:
    """A leaf with a matrix one side of which is its output's channels: also a linear map of a library's own kind."""
    module = made.module
    if isinstance(module, _CONVOLUTION):
        return True
    matrices = [] if any(module.children()) else [each for each in module.parameters() if each.dim() == 2]
    return not isinstance(module, _NO_NEURONS) and any(made.shape[-1] in matrix.shape for matrix in matrices)


def _is_activation(made: _Call) -> bool:
    plain = next(made.module.parameters(), None) is None or isinstance(made.module, nn.PReLU)
    return plain and made.changes and not isinstance(made.module, _NO_ACTIVATION)


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, _CONVOLUTION) and 1 < module.groups == module.in_channels


def _finished(wiring: _Wiring) -> dict[str, set[str]]:
    """Where neurons are finished -> those neurons, before BatchNorm has its say."""
    multiplied = {parent for node in wiring.nodes if node.name().startswith("Mul") for parent, _ in node.next_functions}
    finished: dict[str, set[str]] = {}
    for name, calls in wiring.calls.items():
        factors = isinstance(calls[0].module, _FACTORS) and calls[0].node in multiplied
        if _is_activation(calls[0]) and not factors:
            finished[name] = wiring.behind(name)
    covered = set().union(*finished.values())
    for node in wiring.nodes:
        if node.name().startswith(_FUNCTIONS):
            for parent, _ in node.next_functions:
                heard = reached(parent, wiring.neurons, _JOINING) - covered
                finished |= {name: {name} for name in heard}
    if not any(finished.values()):  # no nonlinearity was recognised: gate the linear maps themselves
        finished = {name: {name} for name in wiring.neurons.values() if name not in wiring.attention}
    return finished


def logit_layers(net: nn.Module, example: Inputs) -> set[str]:
    """The linear maps and convolutions whose channels are the logits, or are added up to them."""
    wiring = _Wiring(net, example)
    found = reached(wiring.output, wiring.neurons, (*_TO_LOGITS, "AvgPool", "AdaptiveAvgPool"))
    return {name for name in found if isinstance(wiring.calls[name][0].module, nn.Linear | _CONVOLUTION)}


def find_sites(net: nn.Module, example: Inputs) -> list[Site]:
    """The places of ``net`` where gates belong, in the order of its modules; ``example`` is a small input batch.

    If there are none, it is what the last linear layer reads, as long as that is not the input itself.
    """
    wiring = _Wiring(net, example)
    finished = _finished(wiring)
    covered_so_far = set().union(*finished.values())
    ends = {each.node: name for name in finished for each in wiring.calls[name]}
    ends |= {node: name for node, name in wiring.neurons.items() if name not in covered_so_far}
    carried_on: set[str] = set()
    for name, calls in wiring.calls.items():
        if isinstance(calls[0].module, _BATCHNORM):  # what it reads is finished behind it
            read = reached(calls[0].source, ends, _JOINING + _SCALING)
            carried_on |= read
            finished[name] = set().union(*(finished.get(each, {each}) for each in read)) - wiring.attention
        elif _is_depthwise(calls[0].module):
            carried_on |= reached(calls[0].source, ends, (*_JOINING, "ConstantPad"))
    sites = []
    for name, module in net.named_modules():
        covered = finished.get(name, set())
        if covered & wiring.trained and not covered & wiring.logits and name not in carried_on:
            channels_first = wiring.is_convolution(min(covered)) or isinstance(module, _BATCHNORM)
            sites.append(wiring.site(name, 1 if channels_first else -1))
    return sites or _last_input(net, wiring)


def find_features(net: nn.Module, example: Inputs) -> list[Site]:
    """The sites that can be replayed: those of layers that run once and have one feature for each row."""
    return [site for site in find_sites(net, example) if site.by_row] or _last_input(net, _Wiring(net, example))


def _last_input(net: nn.Module, wiring: _Wiring) -> list[Site]:
    """What the linear layer that makes the logits reads; an error where there is nothing hidden."""
    for name in wiring.logits:
        made = wiring.calls[name][0]
        if made.source is not None and len(wiring.calls[name]) == 1 and not wiring.is_convolution(name):
            return [Site(name + INPUT, made.read[-1], -1, made.read[0] == wiring.rows)]
    known = ", ".join([name for name, _ in net.named_modules() if name][:SHOWN]) or "none that is a module"
    raise SnclError(
        f"found no hidden layer to gate or replay in this network; name the layers in layers= and features= (it has: "
        f"{known}), or do without them: eta=0, gamma=0"
    )


def named_sites(net: nn.Module, example: Inputs, layers: tuple[str, ...]) -> list[Site]:
    """Sites on layers chosen by name; one that ends in ``:input`` is what that layer reads.

    Channels lie on axis 1 behind convolutions and on the last axis behind linear layers; where neither is near, on axis
    1 of images and on the last axis of everything else.
    """
    wiring = _Wiring(net, example, layers)
    sites = []
    for name in layers:
        if name not in wiring.calls:
            raise SnclError(f"layer {name!r} did not run in a forward pass, or made no tensor; name another layer")
        made = wiring.calls[name][0]
        node, shape = (made.source, made.read) if name.endswith(INPUT) else (made.node, made.shape)
        if len(shape) < 2:
            raise SnclError(f"layer {name!r} has no channels: its shape is {list(shape)}; name another layer")
        near = reached(node, wiring.neurons, _JOINING + _SCALING + _FUNCTIONS)
        if near:
            images = wiring.is_convolution(min(near))
        else:
            images = len(shape) == 4 and not isinstance(made.module, nn.LayerNorm)
        axis = 1 if images and len(shape) > 2 else -1
        sites.append(Site(name, shape[axis], axis, len(wiring.calls[name]) == 1 and shape[0] == wiring.rows))
    return sites
