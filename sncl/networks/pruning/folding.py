"""Fold fixed factors into the weights around them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, fx

from sncl.networks.pruning.dependencies import DependencyGraph
from sncl.networks.pruning.operations import (
    BATCH_NORMS,
    COMMUTES,
    COMMUTES_IF_POSITIVE,
    ELEMENTWISE,
    LINEAR,
    Channels,
    argument,
    channel_axis,
    conv_groups,
    kind,
    propagate,
)
from sncl.networks.pruning.scales import ChannelScale
from sncl.networks.pruning.trace import Trace


class _Reader(NamedTuple):
    """A weight that reads a tensor, the channel that each of its columns reads, and its groups."""

    weight: str
    positions: Tensor
    groups: int


class _Target(NamedTuple):
    """A parameter and its factor for each position along an axis; of a grouped weight, along columns within groups."""

    parameter: str
    axis: int
    factor: Tensor
    groups: int = 1


def fold_scale(scale: ChannelScale, traced: Trace, graph: DependencyGraph) -> bool:
    """Multiply the factors of a scale into the layer in front of it or into all layers behind it.

    The scale is left with ones. False, and nothing changes, where that would not be the same.
    """
    targets = _targets(traced.name_of(scale.factor), traced, graph)
    if targets is None:
        return False
    for target in targets:
        weight = traced.values[target.parameter]
        if target.groups == 1:
            weight.mul_(target.factor.reshape(-1, *[1] * (weight.dim() - 1 - target.axis)))
        else:
            grouped = weight.view(target.groups, -1, *weight.shape[1:])  # [groups, rows, columns, ...]
            grouped.mul_(target.factor.reshape(target.groups, 1, -1, *[1] * (weight.dim() - 2)))
    scale.factor.fill_(1.0)
    return True


def _targets(name: str, traced: Trace, graph: DependencyGraph) -> list[_Target] | None:
    """What the factors of that name are multiplied into; None if they must stay."""
    users = traced.users(name)
    if len(users) != 1 or (name, 0) not in graph.parameters:
        return None
    scaled, factor = users[0], traced.values[name].flatten()
    positive = bool((factor >= 0).all())
    source = next((each for each in scaled.all_input_nodes if each not in traced.names), None)
    in_front = None if source is None else _layer_in_front(source, traced, positive)
    if in_front is not None:
        return [_Target(each, 0, factor) for each in in_front]
    readers = _readers(scaled, _numbered(graph.channels[scaled].axis, len(factor)), traced, positive)
    if readers is None:
        return None
    return [_Target(weight, 1, factor[positions], groups) for weight, positions, groups in readers]


def _layer_in_front(node: fx.Node, traced: Trace, positive: bool) -> list[str] | None:
    """The parameters in front of a tensor whose rows can take its factors, or None."""
    while len(node.users) == 1:
        name, source = kind(node), node.args[0] if node.args else None
        if name in LINEAR:
            bias = argument(node, 2, "bias", None)
            return traced.unshared([node.args[1], *([] if bias is None else [bias])])
        if name in BATCH_NORMS:
            return traced.unshared(list(node.args[1:3]))
        passes = name == "getitem" or (name in ELEMENTWISE and (positive or name not in COMMUTES_IF_POSITIVE))
        if not passes or not isinstance(source, fx.Node):
            return None
        node = source
    return None


def _readers(node: fx.Node, channels: Channels, traced: Trace, positive: bool) -> list[_Reader] | None:
    """The weights that read a tensor, through what factors pass unchanged, or None if something else reads it too."""
    found: list[_Reader] = []
    for user in node.users:
        name = kind(user)
        if name in LINEAR and user.args[0] is node and channels.axis == channel_axis(user, node):
            weights = traced.unshared([user.args[1]])
            if weights is None:
                return None
            found.append(_Reader(weights[0], channels.units, conv_groups(user)))
        elif name in COMMUTES or (name in COMMUTES_IF_POSITIVE and positive):
            moved = propagate(user, channels)
            further = None if moved is None else _readers(user, moved, traced, positive)
            if further is None:
                return None
            found += further
        else:
            return None
    return found


def _numbered(axis: int, count: int) -> Channels:
    """So many channels along an axis, numbered from 0."""
    return Channels(axis, torch.arange(count), torch.zeros(count, dtype=torch.bool))
