"""A smaller network: the neurons that gates have closed are taken out, and the gates with them.

In evaluation a gate multiplies each channel by a fixed number, which is 0 for a closed neuron. A closed neuron that is
read behind its gate alone can go: its row of the map that makes it, its entries of a BatchNorm, the columns of the maps
that read it (a channel behind a flatten is height * width columns). Neurons that meet in a residual sum share a
channel, which can go only if it is closed wherever it is read. The factors of the other neurons are multiplied into a
map in front of the gate or behind it; where there is none that may take them (an identity shortcut passes the sum on),
the gate becomes a :class:`ChannelScale`. Where open neurons answer for closed ones, the maps behind read that answer
from the open ones: the product of two matrices, once.

Which channels belong together is found by :mod:`sncl.networks.pruning.channels`, which keeps whatever it does not
understand. The result is compared with the gated network before it is handed out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from sncl.errors import SnclError
from sncl.networks.gating.attach import INPUT_GATE, Apply, by_layer, gates
from sncl.networks.gating.gate import Gate
from sncl.networks.gating.mask import mixed
from sncl.networks.pruning.channels import (
    COMMUTES,
    COMMUTES_IF_POSITIVE,
    ELEMENTWISE,
    LINEAR,
    NORMS,
    Channels,
    Flow,
    Trace,
    argument,
    groups_of,
    kind,
    reading_axis,
    shape,
    through,
    trace,
)
from sncl.networks.taps import INPUT, Tapped, arguments, evaluating, without_taps
from sncl.tensors.fields import Inputs, mapped

SCALE, INPUT_SCALE = "channel_scale", "input_channel_scale"  # the names of fixed factors
TOLERANCE = 1e-4  # of the largest output, or of 1 where that is less


class ChannelScale(nn.Module):
    """A fixed factor for every channel, and what closed ones take from the others: what a gate does in evaluation."""

    factor: Tensor  # [channels, 1, ...]: as many axes as there are from the channels on
    takes: Tensor | None  # [channels, channels]

    def __init__(self, factor: Tensor, takes: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("factor", factor)
        self.register_buffer("takes", takes)

    def forward(self, h: Tensor) -> Tensor:
        scaled = h * self.factor
        return scaled if self.takes is None else scaled + mixed(h, self.takes, -self.factor.dim())


class Layer(NamedTuple):
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
    layers: dict[str, Layer]
    difference: float
    note: str | None = None


def prune(net: nn.Module, example: Inputs, *, tolerance: float = TOLERANCE) -> nn.Module:
    """A copy of ``net`` without gates, in evaluation mode, from which closed neurons are removed.

    ``net`` is a network with gates, such as ``learner.net``; it is left as it is. ``example`` is a small batch of what
    the network reads (behind the view), a tensor or a dictionary of keyword arguments. The result computes the same as
    ``net`` in evaluation. This is checked on the example: a largest difference above ``tolerance``, relative to the
    largest output, is an error. A network that cannot be analysed keeps its neurons, with a warning that says why; its
    gates become fixed factors.
    """
    found = pruned(net, example, tolerance=tolerance)
    if found.note is not None:
        warnings.warn(found.note, stacklevel=2)
    return found.net


def pruned(net: nn.Module, example: Inputs, *, tolerance: float = TOLERANCE) -> Pruned:
    """:func:`prune`, with an account of what was done."""
    body = net.body if isinstance(net, Tapped) else net
    device = next((value.device for value in body.parameters()), torch.device("cpu"))
    example = mapped(lambda part: part.to(device), example)
    with evaluating(body), torch.no_grad():
        wanted = _returned(body, example)
        fixed = _with_fixed_gates(body, example)
    counts = {name: (len(gate.mu), int(gate.is_open().sum())) for name, gate in gates(body)}
    refusal = None
    try:
        small, left = _smaller(fixed, example)
        difference = _difference(small, example, wanted)
    except Exception as error:  # whatever a foreign network or the tracer may raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        refusal = f"the network cannot be analysed ({reason[:300]})"
    else:
        if not difference <= tolerance:
            refusal = "without the closed neurons it computes something else"
    if refusal is not None:
        small, left = fixed, {name: neurons for name, (neurons, _) in counts.items()}
        difference = _difference(small, example, wanted)
    if not difference <= tolerance:
        raise SnclError(
            f"the pruned network differs from the gated one by {difference:.1e} on the example, and {tolerance:.1e} is "
            "allowed; does it draw random numbers in evaluation, or are its outputs not finite?"
        )
    note = None if refusal is None else f"nothing was removed, gates became fixed factors: {refusal}"
    remaining = {name for name, _ in _scales(small)}
    layers = {name: Layer(*counts[name], left[name], name in remaining) for name in counts}
    return Pruned(small, layers, difference, note)


def _returned(net: nn.Module, example: Inputs) -> list[Tensor]:
    """Every tensor in what a network returns."""
    positional, named = arguments(example)
    return _tensors(net(*positional, **named))


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return [each for part in parts for each in _tensors(part)]


def _difference(net: nn.Module, example: Inputs, wanted: list[Tensor]) -> float:
    """The largest difference from the outputs that are wanted, relative to the largest of them (at least 1)."""
    with torch.no_grad():
        found = _returned(net, example)
    if [each.shape for each in found] != [each.shape for each in wanted]:
        raise SnclError("its outputs have another shape without the closed neurons")
    scale = max([1.0, *(float(each.abs().max()) for each in wanted if each.numel())])
    apart = [float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True) if a.numel()]
    return max(apart, default=0.0) / scale


def _with_fixed_gates(net: nn.Module, example: Inputs) -> nn.Module:
    """A copy without taps whose gates are fixed factors. ``net`` is in evaluation mode."""
    copy = without_taps(deepcopy(net))
    dims: dict[nn.Module, int] = {}

    def note_dims(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        dims[module] = inputs[0].dim()

    found = [(name, module) for name, module in copy.named_modules() if isinstance(module, Gate)]
    handles = [gate.register_forward_pre_hook(note_dims) for _, gate in found]
    _returned(copy, example)
    for handle in handles:
        handle.remove()
    for name, gate in found:
        behind = dims.get(gate, 1) - 1 - gate.axis if gate.axis >= 0 else -1 - gate.axis
        given = gate.is_open()
        factor = (gate.mu * given).detach().reshape(-1, *[1] * behind)
        scale = ChannelScale(factor, gate.compensation() if gate.compensates and not given.all() else None).eval()
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


def _scales(net: nn.Module) -> Iterator[tuple[str, ChannelScale]]:
    """The fixed factors of a network by the name of their layer."""
    return by_layer(net, ChannelScale, INPUT_SCALE)


def _smaller(fixed: nn.Module, example: Inputs) -> tuple[nn.Module, dict[str, int]]:
    """A copy without closed neurons, and how many are left in each gated layer."""
    net = deepcopy(fixed)
    if next(_scales(net), None) is None:
        return net, {}
    _hand_over(net, example)
    traced = trace(net, *arguments(example))
    flow = Flow(traced)
    kept = flow.kept()
    with torch.no_grad():
        for _, scale in list(_scales(net)):
            if scale.takes is None and _fold(_name_of(traced, scale.factor), traced, flow):
                scale.factor.fill_(1.0)
        left = {}
        for name, scale in _scales(net):
            units = flow.owned.get((_name_of(traced, scale.factor), 0))
            left[name] = len(scale.factor) if units is None else int(kept[units].sum())
        _slice(net, traced, flow, kept)
        for name, scale in list(_scales(net)):
            if scale.takes is None and bool((scale.factor == 1).all()):
                _take_off(net.get_submodule(name.removesuffix(INPUT)), scale)
    return net, left


def _name_of(traced: Trace, value: Tensor) -> str:
    return next(name for name, each in traced.values.items() if each is value)


def _take_off(place: nn.Module, scale: ChannelScale) -> None:
    tables: list[dict[int, Any]] = [place._forward_hooks, place._forward_pre_hooks]
    for hooks in tables:
        for key in [key for key, hook in hooks.items() if isinstance(hook, Apply) and hook.gate is scale]:
            del hooks[key]
    name = next(name for name, module in place.named_children() if module is scale)
    if isinstance(place, nn.Sequential):
        del place[list(place._modules).index(name)]
    else:
        delattr(place, name)


# --- factors into the maps around them -------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """A parameter of a linear map, the place of the channels that each of its columns reads, and its groups."""

    name: str
    places: Tensor
    groups: int


class _Target(NamedTuple):
    """A parameter that takes a factor for each place along an axis; of a grouped map, along columns within groups."""

    name: str
    axis: int
    factor: Tensor
    groups: int = 1


def _fold(name: str, traced: Trace, flow: Flow) -> bool:
    """Multiply the factors of a scale into a map in front of it or into all maps behind it, if that is the same."""
    users = traced.users(name)
    if len(users) != 1 or (name, 0) not in flow.owned:
        return False
    gated, factor = users[0], traced.values[name].flatten()
    source = next((each for each in gated.all_input_nodes if each not in traced.names), None)
    targets = None if source is None else _in_front(source, factor, traced)
    if targets is None:
        positive = bool((factor >= 0).all())
        readers = _behind(gated, _numbered(flow.channels[gated].axis, len(factor)), traced, positive)
        if readers is not None:
            targets = [_Target(reader, 1, factor[places], groups) for reader, places, groups in readers]
    for target in targets or ():
        weight = traced.values[target.name]
        if target.groups == 1:
            weight.mul_(target.factor.reshape(-1, *[1] * (weight.dim() - 1 - target.axis)))
        else:
            grouped = weight.view(target.groups, -1, *weight.shape[1:])  # [groups, rows, columns, ...]
            grouped.mul_(target.factor.reshape(target.groups, 1, -1, *[1] * (weight.dim() - 2)))
    return targets is not None


def _own_parameters(nodes: list[Any], traced: Trace) -> list[str] | None:
    """The names of these parameters, if nothing else uses them."""
    names = [traced.names[node] for node in nodes if isinstance(node, fx.Node) and node in traced.names]
    alone = len(names) == len(nodes) and all(len(traced.users(name)) == 1 for name in names)
    return names if alone else None


def _in_front(node: fx.Node, factor: Tensor, traced: Trace) -> list[_Target] | None:
    """The parameters in front of a gate whose rows can take its factors, or None."""
    positive = bool((factor >= 0).all())
    while len(node.users) == 1:
        name, source = kind(node), node.args[0] if node.args else None
        if name in LINEAR:
            bias = argument(node, 2, "bias", None)
            names = _own_parameters([node.args[1], *([] if bias is None else [bias])], traced)
        elif name in NORMS:
            names = _own_parameters(list(node.args[1:3]), traced)
        elif isinstance(source, fx.Node) and (
            name == "getitem" or (name in ELEMENTWISE and (positive or name not in COMMUTES_IF_POSITIVE))
        ):
            node = source
            continue
        else:
            return None
        return None if names is None else [_Target(each, 0, factor) for each in names]
    return None


def _numbered(axis: int, channels: int) -> Channels:
    return Channels(axis, torch.arange(channels), torch.zeros(channels, dtype=torch.bool))


def _behind(node: fx.Node, places: Channels, traced: Trace, positive: bool) -> list[_Columns] | None:
    """The parameters that read a tensor, through what factors pass unchanged, or None if there are other readers."""
    found: list[_Columns] = []
    for user in node.users:
        name = kind(user)
        if name in LINEAR and user.args[0] is node and places.axis == reading_axis(user):
            names = _own_parameters([user.args[1]], traced)
            if names is None:
                return None
            found.append(_Columns(names[0], places.units, groups_of(user)))
        elif name in COMMUTES or (name in COMMUTES_IF_POSITIVE and positive):
            moved = through(user, places)
            further = None if moved is None else _behind(user, moved, traced, positive)
            if further is None:
                return None
            found += further
        else:
            return None
    return found


def _hand_over(net: nn.Module, example: Inputs) -> None:
    """Where channels answer for others, let the maps behind read that from them, if nothing else reads it."""
    handing = [scale for _, scale in _scales(net) if scale.takes is not None]
    if not handing:
        return
    traced = trace(net, *arguments(example))
    for scale in handing:
        assert scale.takes is not None
        scaled = traced.users(_name_of(traced, scale.factor))
        if len(scaled) != 1:  # a layer that runs more than once
            continue
        (total,) = scaled[0].users
        axis = len(shape(total)) - scale.factor.dim()
        readers = _behind(total, _numbered(axis, len(scale.factor)), traced, positive=False)
        if readers is None or any(groups > 1 for _, _, groups in readers):
            continue
        answers = scale.takes + torch.diag(scale.factor.flatten())  # [channels as read, channels as given]
        for reader, places, _ in readers:
            weight = traced.values[reader].detach()  # [rows, columns, ...]
            order = places.argsort(stable=True).to(weight.device)
            by_channel = weight.index_select(1, order).unflatten(1, (len(answers), -1))  # [rows, channels, times, ...]
            weight.index_copy_(1, order, torch.einsum("rc...,cd->rd...", by_channel, answers).flatten(1, 2))
        scale.factor.copy_(answers.any(0).reshape(scale.factor.shape))
        scale.takes = None


# --- taking rows and columns out -------------------------------------------------------------------------------------


def _slice(net: nn.Module, traced: Trace, flow: Flow, kept: Tensor) -> None:
    """Keep of every parameter what belongs to the units that stay."""
    new: dict[int, Tensor] = {}
    for (name, axis), units in flow.owned.items():
        old = traced.values[name]
        places = kept[units].nonzero()[:, 0].to(old.device)
        if len(places) < len(units):
            new[id(old)] = new.get(id(old), old.detach()).index_select(axis, places)
    for module in net.modules():
        changed = False
        for name, parameter in list(module._parameters.items()):
            if id(parameter) in new and parameter is not None:
                module._parameters[name] = nn.Parameter(new[id(parameter)], parameter.requires_grad)
                changed = True
        for name, buffer in list(module._buffers.items()):
            if id(buffer) in new:
                module._buffers[name] = new[id(buffer)]
                changed = True
        if changed:
            _resize(module)


def _resize(module: nn.Module) -> None:
    """Let a module say the sizes its parameters have now."""
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.modules.conv._ConvNd):
        if module.groups > 1:
            module.groups = module.groups * module.weight.shape[0] // module.out_channels
        module.out_channels = module.weight.shape[0]
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
        module.num_features = len(module.running_mean)
