"""A smaller network: the neurons that gates have closed are removed, and the gates with them.

In evaluation a gate multiplies each channel by a fixed number, which is 0 for a closed neuron. A closed neuron that is
read behind its gate alone can go: its row of the layer that makes it, its entries of a BatchNorm, the columns of the
layers that read it (a channel behind a flatten is height * width columns). Neurons that meet in a residual sum share a
channel, which can go only if it is closed wherever it is read. The factors of the other neurons are multiplied into a
layer in front of the gate or behind it; where there is none that may take them (an identity shortcut passes the sum
on), the gate becomes a :class:`~sncl.networks.pruning.scales.ChannelScale`.

Which channels belong together is found by :mod:`sncl.networks.pruning.dependencies`, which keeps whatever it does not
understand. The result is compared with the gated network before it is returned.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.pruning.dependencies import DependencyGraph
from sncl.networks.pruning.folding import fold_scale
from sncl.networks.pruning.scales import count_neurons, remove_scale, scales, with_fixed_gates
from sncl.networks.pruning.slicing import slice_parameters
from sncl.networks.pruning.trace import trace
from sncl.networks.taps import Tapped, arguments, evaluating, forward
from sncl.tensors.fields import Inputs, mapped

PRUNE_TOLERANCE = 1e-4  # of the largest output, or of 1 where that is less


class PrunedLayer(NamedTuple):
    """The neurons of one gated layer: how many there are, are open, and are left; whether factors stayed behind."""

    neurons: int
    open: int
    left: int
    scaled: bool


@dataclass(frozen=True)
class Pruned:
    """A network without gates, what became of each gated layer, and how far it is from the gated network.

    ``note`` says why nothing could be removed, where that is so.
    """

    net: nn.Module
    layers: dict[str, PrunedLayer]
    difference: float
    note: str | None = None


class _Smaller(NamedTuple):
    """A network, how many neurons are left in each gated layer, and how far it is from the gated network."""

    net: nn.Module
    left: dict[str, int]
    difference: float


def prune(net: nn.Module, example: Inputs, *, tolerance: float = PRUNE_TOLERANCE) -> nn.Module:
    """A copy of ``net`` without gates, in evaluation mode, from which closed neurons are removed.

    ``net`` is a network with gates, such as ``learner.net``; it is left as it is. ``example`` is a small batch of what
    the network reads (behind the transform), a tensor or a dictionary of keyword arguments. The result computes the
    same as ``net`` in evaluation. This is checked on the example: a largest difference above ``tolerance``, relative to
    the largest output, is an error. A network that cannot be analysed keeps its neurons, with a warning that says why;
    its gates become fixed factors.
    """
    found = pruned(net, example, tolerance=tolerance)
    if found.note is not None:
        warnings.warn(found.note, stacklevel=2)
    return found.net


def pruned(net: nn.Module, example: Inputs, *, tolerance: float = PRUNE_TOLERANCE) -> Pruned:
    """:func:`prune`, with an account of what was done."""
    body = net.body if isinstance(net, Tapped) else net
    device = next((value.device for value in body.parameters()), torch.device("cpu"))
    example = mapped(lambda part: part.to(device), example)
    counts = count_neurons(body)
    with full_precision():
        with evaluating(body), torch.no_grad():
            expected = _tensors(forward(body, example))
            fixed = with_fixed_gates(body, example)
        small, note = _attempt(fixed, example, expected, tolerance), None
        if isinstance(small, str):
            note = f"nothing was removed, gates became fixed factors: {small}"
            left = {name: neurons for name, (neurons, _) in counts.items()}
            small = _Smaller(fixed, left, _difference(fixed, example, expected))
    if not small.difference <= tolerance:
        raise SnclError(
            f"the pruned network differs from the gated one by {small.difference:.1e} on the example, and "
            f"{tolerance:.1e} is allowed; does it draw random numbers in evaluation, or are its outputs not finite?"
        )
    scaled = {name for name, _ in scales(small.net)}
    layers = {name: PrunedLayer(*counts[name], small.left[name], name in scaled) for name in counts}
    return Pruned(small.net, layers, small.difference, note)


@contextmanager
def full_precision() -> Iterator[None]:
    """Convolutions of a GPU in single precision within the block: TensorFloat-32 alone makes two networks differ."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _attempt(fixed: nn.Module, example: Inputs, expected: list[Tensor], tolerance: float) -> _Smaller | str:
    """The network without closed neurons, or why it keeps them."""
    try:
        net, left = _without_closed(fixed, example)
        difference = _difference(net, example, expected)
    except Exception as error:  # whatever a foreign network or the tracer may raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"the network cannot be analysed ({reason[:300]})"
    if not difference <= tolerance:
        return "without the closed neurons it computes something else"
    return _Smaller(net, left, difference)


@torch.no_grad()
def _without_closed(fixed: nn.Module, example: Inputs) -> tuple[nn.Module, dict[str, int]]:
    """A copy without closed neurons, and how many are left in each gated layer."""
    net = deepcopy(fixed)
    if next(scales(net), None) is None:
        return net, {}
    traced = trace(net, *arguments(example))
    graph = DependencyGraph(traced)
    kept = graph.kept()
    left = {}
    for name, scale in list(scales(net)):
        fold_scale(scale, traced, graph)
        units = graph.parameters.get((traced.name_of(scale.factor), 0))
        left[name] = len(scale.factor) if units is None else int(kept[units].sum())
    slice_parameters(net, traced, graph, kept)
    for name, scale in list(scales(net)):
        if scale.is_identity():
            remove_scale(net, name, scale)
    return net, left


def _difference(net: nn.Module, example: Inputs, expected: list[Tensor]) -> float:
    """The largest difference from the expected outputs, relative to the largest of them (at least 1)."""
    with torch.no_grad():
        found = _tensors(forward(net, example))
    if [each.shape for each in found] != [each.shape for each in expected]:
        raise SnclError("its outputs have another shape without the closed neurons")
    largest = max([1.0, *(float(each.abs().max()) for each in expected if each.numel())])
    apart = [float((a - b).abs().max()) for a, b in zip(found, expected, strict=True) if a.numel()]
    return max(apart, default=0.0) / largest


def _tensors(output: Any) -> list[Tensor]:
    """Every tensor in what a network returns."""
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return [each for part in parts for each in _tensors(part)]
