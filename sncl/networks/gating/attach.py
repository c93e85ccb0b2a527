"""Gates on any network: where they stand, and switches for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.gating.gate import Gate, VarianceGate
from sncl.networks.layers import find_sites, named_sites
from sncl.networks.taps import INPUT, layer
from sncl.tensors.fields import Inputs

Part = TypeVar("Part", bound=nn.Module)
MakeGate = Callable[[int, int, torch.Generator | None], Gate]  # channels, axis, generator
INPUT_GATE = "input_gate"  # the name of a gate on what its layer reads


class Apply:
    """The forward hook that gates a layer's output (an object, so that copies of a network keep their own gates)."""

    def __init__(self, gate: nn.Module) -> None:
        self.gate = gate

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        return (self.gate(output[0]), *output[1:]) if isinstance(output, tuple) else self.gate(output)


class _ApplyBefore(Apply):
    """The hook that gates what a layer reads."""

    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> Any:
        return super().__call__(module, inputs, inputs)


def attach_gates(
    net: nn.Module,
    example: Inputs,
    layers: tuple[str, ...] | None = None,
    *,
    make: MakeGate = VarianceGate,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Put gates on ``net`` (changed in place and returned).

    ``example`` is a small input batch; it shows how the network is wired. Without ``layers`` the places are found:
    behind the nonlinearity of every hidden layer and on residual sums, never in front of a BatchNorm and never on the
    logits. With ``layers`` they stand behind the layers of these names, or in front of one that ends in ``:input``.
    ``make`` builds the gates of a layer; ``generator`` draws their first means.
    """
    if next(gates(net), None) is not None:
        raise SnclError("this network has gates already; attach_gates puts them on once")
    sites = find_sites(net, example) if layers is None else named_sites(net, example, layers)
    for site in sites:
        place = layer(net, site.name)
        gate = make(site.channels, site.axis, generator).train(place.training)
        gate.own, gate.last = site.own, site.last
        if isinstance(place, nn.Sequential) and not site.name.endswith(INPUT):
            place.append(gate)  # runs last, as part of the sequence
        elif site.name.endswith(INPUT):
            place.add_module(INPUT_GATE, gate)
            place.register_forward_pre_hook(_ApplyBefore(gate), prepend=True)
        else:
            place.add_module("gate", gate)
            place.register_forward_hook(Apply(gate), prepend=True)  # before the taps, so that they see the gated value
    return net


def gates(net: nn.Module) -> Iterator[tuple[str, Gate]]:
    """The gates of a network by the name of their layer."""
    return by_layer(net, Gate, INPUT_GATE)  # type: ignore[type-abstract]


def variance_gates(net: nn.Module) -> Iterator[tuple[str, VarianceGate]]:
    """Those of them that are random."""
    return by_layer(net, VarianceGate, INPUT_GATE)


def by_layer(net: nn.Module, kind: type[Part], at_input: str) -> Iterator[tuple[str, Part]]:
    """The modules of a kind by the name of the layer they stand on; ``at_input`` is what one on its input is called."""
    for name, module in net.named_modules():
        if isinstance(module, kind):
            place, _, own = name.rpartition(".")
            yield place + INPUT if own == at_input else place, module


def open_neurons(net: nn.Module) -> dict[str, Tensor]:
    """For every gated layer, which neurons are open: bool [channels]."""
    return {name: gate.is_open() for name, gate in gates(net)}


def sampling(net: nn.Module) -> AbstractContextManager[None]:
    """Let gates draw from their posterior in evaluation too, while all else stays as it is there.

    BatchNorm keeps its running statistics, dropout does nothing, and closed neurons stay silent: what varies is the
    posterior's uncertainty alone. The noise comes from torch's global generator.
    """
    return _with_gates(net, "sampling", True)


def unmasked(net: nn.Module) -> AbstractContextManager[None]:
    """Evaluate without any mask: closed neurons respond at their mean."""
    return _with_gates(net, "masking", False)


@contextmanager
def closing(net: nn.Module, shut: dict[str, Tensor]) -> Iterator[None]:
    """Evaluate with these neurons of each layer closed as well: bool [channels]. Nothing that is stored changes."""
    found = [(gate, shut[name], gate.shut) for name, gate in gates(net)]
    try:
        for gate, closed, _ in found:
            gate.shut = closed
        yield
    finally:
        for gate, _, before in found:
            gate.shut = before


@contextmanager
def _with_gates(net: nn.Module, switch: str, value: bool) -> Iterator[None]:
    found = [gate for _, gate in variance_gates(net)]
    for gate in found:
        setattr(gate, switch, value)
    try:
        yield
    finally:
        for gate in found:
            setattr(gate, switch, not value)
