"""Find where a network's neurons are: the layers a gate may stand on, in any ``nn.Module``.

A neuron is a channel that a linear layer or a convolution produces. Its gate belongs where the neuron is finished:
behind the normalisation and the nonlinearity that follow, and on the residual *sum* instead of one of its branches,
so that a closed gate silences the channel. Never gated are the logits, anything a BatchNorm reads (it would divide the
gate's scale out again), what a depthwise convolution carries on (its own channels are gated instead), the factors of
squeeze and excitation, what attention reads, and neurons that are frozen.

What follows what is read off one forward pass, see :mod:`sncl.networks.wiring`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from sncl.errors import SnclError
from sncl.networks.taps import INPUT
from sncl.networks.wiring import (
    BATCHNORM,
    CONVOLUTION,
    JOINING,
    NORMS,
    SCALING,
    TO_LOGITS,
    ModuleCall,
    Wiring,
    reached,
)
from sncl.tensors.fields import Inputs

_NO_ACTIVATION = (*NORMS, nn.Dropout, nn.Softmax, nn.LogSoftmax, nn.Identity, nn.Flatten)
_FACTORS = (nn.Sigmoid, nn.Hardsigmoid)  # of squeeze and excitation, where they are multiplied with something
# Nonlinearities that are functions, not modules: of zero they make zero, so a gate may stand in front of them.
_FUNCTIONS = ("Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Hardswish", "Hardtanh", "Tanh", "Mish")
_NAMES_IN_ERROR = 20


class Site(NamedTuple):
    """One layer whose output channels can be gated: its name, how many channels, and on which axis they lie.

    ``by_row``: it runs once, and its first axis is that of the samples, so that it is a feature that can be replayed.
    ``own``: its channels are its own, not a residual sum's. ``last``: they are, and the layer that makes the logits
    reads them.
    """

    name: str
    channels: int
    axis: int
    by_row: bool = True
    own: bool = True
    last: bool = False


def find_sites(net: nn.Module, example: Inputs) -> list[Site]:
    """The layers of ``net`` where gates belong, in the order of its modules; ``example`` is a small input batch.

    If there are none, it is what the last linear layer reads, as long as that is not the input itself.
    """
    wiring = Wiring(net, example)
    finished, carried_on = _behind_norms(wiring, _finished(wiring))
    sites = []
    for name, module in net.named_modules():
        covered = finished.get(name, set())
        if covered & wiring.trained and not covered & wiring.logits and name not in carried_on:
            channels_first = wiring.is_convolution(min(covered)) or isinstance(module, BATCHNORM)
            sites.append(_site(wiring, name, wiring.calls[name][0].shape, 1 if channels_first else -1))
    return _with_readers(wiring, sites) or _last_input(net, wiring)


def find_features(net: nn.Module, example: Inputs) -> list[Site]:
    """The sites that can be replayed: those of layers that run once and have one feature for each sample."""
    return [site for site in find_sites(net, example) if site.by_row] or _last_input(net, Wiring(net, example))


def named_sites(net: nn.Module, example: Inputs, layers: tuple[str, ...]) -> list[Site]:
    """Sites on layers chosen by name; one that ends in ``:input`` is what that layer reads.

    Channels lie on axis 1 behind convolutions and on the last axis behind linear layers; where neither is near, on axis
    1 of images and on the last axis of everything else.
    """
    wiring = Wiring(net, example, layers)
    sites = []
    for name in layers:
        if name not in wiring.calls:
            raise SnclError(f"layer {name!r} did not run in a forward pass, or made no tensor; name another layer")
        made = wiring.calls[name][0]
        node, shape = (made.source, made.input_shape) if name.endswith(INPUT) else (made.node, made.shape)
        if len(shape) < 2:
            raise SnclError(f"layer {name!r} has no channels: its shape is {list(shape)}; name another layer")
        near = reached(node, wiring.neurons, JOINING + SCALING + _FUNCTIONS)
        if near:
            images = wiring.is_convolution(min(near))
        else:
            images = len(shape) == 4 and not isinstance(made.module, nn.LayerNorm)
        sites.append(_site(wiring, name, shape, 1 if images and len(shape) > 2 else -1))
    return _with_readers(wiring, sites)


def logit_layers(net: nn.Module, example: Inputs) -> set[str]:
    """The linear layers and convolutions whose channels are the logits, or are added up to them."""
    wiring = Wiring(net, example)
    found = reached(wiring.output, wiring.neurons, (*TO_LOGITS, "AvgPool", "AdaptiveAvgPool"))
    return {name for name in found if isinstance(wiring.calls[name][0].module, nn.Linear | CONVOLUTION)}


def _site(wiring: Wiring, name: str, shape: torch.Size, axis: int) -> Site:
    return Site(name, shape[axis], axis, wiring.by_row(name, shape))


def _with_readers(wiring: Wiring, sites: list[Site]) -> list[Site]:
    """The sites, and which of them are no residual sums, and which the logits are made of."""
    ends = {each.node: site.name for site in sites if site.name in wiring.calls for each in wiring.calls[site.name]}
    read = set().union(*(reached(wiring.calls[name][0].source, ends, (*TO_LOGITS, *SCALING)) for name in wiring.logits))
    own = {name for node, name in ends.items() if len(reached(node, wiring.neurons, JOINING + SCALING)) == 1}
    return [site._replace(own=site.name in own, last=site.name in read & own) for site in sites]


def _finished(wiring: Wiring) -> dict[str, set[str]]:
    """The modules that finish neurons -> those neurons, before BatchNorm has its say."""
    multiplied = {parent for node in wiring.nodes if node.name().startswith("Mul") for parent, _ in node.next_functions}
    finished: dict[str, set[str]] = {}
    for name, calls in wiring.calls.items():
        factors = isinstance(calls[0].module, _FACTORS) and calls[0].node in multiplied
        if _is_activation(calls[0]) and not factors:
            finished[name] = wiring.finished_by(name)
    covered = set().union(*finished.values())
    for node in wiring.nodes:
        if node.name().startswith(_FUNCTIONS):
            for parent, _ in node.next_functions:
                heard = reached(parent, wiring.neurons, JOINING) - covered
                finished |= {name: {name} for name in heard}
    if not any(finished.values()):  # no nonlinearity was recognised: gate the linear layers themselves
        finished = {name: {name} for name in wiring.neurons.values() if name not in wiring.attention}
    return finished


def _behind_norms(wiring: Wiring, finished: dict[str, set[str]]) -> tuple[dict[str, set[str]], set[str]]:
    """The same where what a BatchNorm reads is finished behind it, and the modules that are then not gated.

    Those are what a BatchNorm reads and what a depthwise convolution carries on.
    """
    finished, covered = dict(finished), set().union(*finished.values())
    ends = {each.node: name for name in finished for each in wiring.calls[name]}
    ends |= {node: name for node, name in wiring.neurons.items() if name not in covered}
    carried_on: set[str] = set()
    for name, calls in wiring.calls.items():
        if isinstance(calls[0].module, BATCHNORM):
            read = reached(calls[0].source, ends, JOINING + SCALING)
            carried_on |= read
            finished[name] = set().union(*(finished.get(each, {each}) for each in read)) - wiring.attention
        elif _is_depthwise(calls[0].module):
            carried_on |= reached(calls[0].source, ends, (*JOINING, "ConstantPad"))
    return finished, carried_on


def _is_activation(made: ModuleCall) -> bool:
    plain = next(made.module.parameters(), None) is None or isinstance(made.module, nn.PReLU)
    return plain and made.changes and not isinstance(made.module, _NO_ACTIVATION)


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, CONVOLUTION) and 1 < module.groups == module.in_channels


def _last_input(net: nn.Module, wiring: Wiring) -> list[Site]:
    """What the linear layer that makes the logits reads; an error where there is nothing hidden."""
    for name in wiring.logits:
        made = wiring.calls[name][0]
        if made.source is not None and len(wiring.calls[name]) == 1 and not wiring.is_convolution(name):
            return [_site(wiring, name, made.input_shape, -1)._replace(name=name + INPUT)]
    known = ", ".join([name for name, _ in net.named_modules() if name][:_NAMES_IN_ERROR]) or "none that is a module"
    raise SnclError(
        f"found no hidden layer to gate or replay in this network; name the layers in `layers` and `features` (it has: "
        f"{known}), or do without them: `gates=off`, `gamma=0`"
    )
