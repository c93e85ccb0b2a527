"""Gates as fixed factors, which is what they are in evaluation.

This is the one module of pruning that knows what a gate is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn

from sncl.networks.gating.attach import INPUT_GATE, Apply, by_layer, gates
from sncl.networks.gating.gate import Gate
from sncl.networks.taps import INPUT, forward, remove_hooks, without_taps
from sncl.tensors.fields import Inputs

SCALE, INPUT_SCALE = "channel_scale", "input_channel_scale"  # the names of fixed factors


class ChannelScale(nn.Module):
    """What a gate does in evaluation: ``h * factor``."""

    factor: Tensor  # [channels, 1, ...]: as many axes as there are from the channels on

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, h: Tensor) -> Tensor:
        return h * self.factor

    def is_identity(self) -> bool:
        return bool((self.factor == 1).all())


def scales(net: nn.Module) -> Iterator[tuple[str, ChannelScale]]:
    """The fixed factors of a network by the name of their layer."""
    return by_layer(net, ChannelScale, INPUT_SCALE)


def count_neurons(net: nn.Module) -> dict[str, tuple[int, int]]:
    """How many neurons each gated layer has, and how many of them are open."""
    return {name: (gate.channels, int(gate.is_open().sum())) for name, gate in gates(net)}


def with_fixed_gates(net: nn.Module, example: Inputs) -> nn.Module:
    """A copy without taps whose gates are fixed factors. ``net`` is in evaluation mode."""
    copy = without_taps(deepcopy(net))
    found = [(name, module) for name, module in copy.named_modules() if isinstance(module, Gate)]
    dims = _input_dims(copy, [gate for _, gate in found], example)
    for name, gate in found:
        scale = _fixed(gate, dims.get(gate, 1))
        parent, _, own = name.rpartition(".")
        place = copy.get_submodule(parent)
        if isinstance(place, nn.Sequential):
            copy.set_submodule(name, scale)
        else:
            delattr(place, own)
            place.add_module(INPUT_SCALE if own == INPUT_GATE else SCALE, scale)  # a gate's own name stays free
        for hook in (*place._forward_hooks.values(), *place._forward_pre_hooks.values()):
            if isinstance(hook, Apply) and hook.gate is gate:
                hook.gate = scale
    return copy


def without_gates(net: nn.Module, example: Inputs) -> nn.Module:
    """A copy with all its neurons and without gates and taps: the dense network. ``net`` is in evaluation mode."""
    copy = with_fixed_gates(net, example)
    for name, scale in list(scales(copy)):
        remove_scale(copy, name, scale)
    return copy


def count_parameters(net: nn.Module) -> int:
    """Learned numbers, what is left of gates included."""
    factors = sum(value.numel() for _, scale in scales(net) for value in scale.buffers())
    return factors + sum(parameter.numel() for parameter in net.parameters())


def _fixed(gate: Gate, dims: int) -> ChannelScale:
    """The gate of an input with so many axes, as it is in evaluation."""
    behind = dims - 1 - gate.axis if gate.axis >= 0 else -1 - gate.axis
    return ChannelScale(gate.factor().detach().reshape(-1, *[1] * behind)).eval()


def _input_dims(net: nn.Module, modules: list[Gate], example: Inputs) -> dict[nn.Module, int]:
    """How many axes the input of each module has in a forward pass."""
    dims: dict[nn.Module, int] = {}

    def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        dims[module] = inputs[0].dim()

    handles = [module.register_forward_pre_hook(record) for module in modules]
    with torch.no_grad():
        forward(net, example)
    for handle in handles:
        handle.remove()
    return dims


def remove_scale(net: nn.Module, name: str, scale: ChannelScale) -> None:
    """Take a scale off the layer of that name."""
    place = net.get_submodule(name.removesuffix(INPUT))
    remove_hooks(place, lambda hook: isinstance(hook, Apply) and hook.gate is scale)
    own = next(own for own, module in place.named_children() if module is scale)
    if isinstance(place, nn.Sequential):
        del place[list(place._modules).index(own)]
    else:
        delattr(place, own)
