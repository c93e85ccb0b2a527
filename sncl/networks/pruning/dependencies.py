"""Follow the channels of a traced network from the layer that makes them to the layers that read them.

Every tensor of the trace says, where it can, which unit lies at each position of its channel axis and which positions
are zero whatever the input. Every parameter says which of its rows or columns belong to which unit. What is not
understood is only ever kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, fx

from sncl.networks.pruning.groups import ChannelGroups, Dependency
from sncl.networks.pruning.operations import (
    BATCH_NORMS,
    BINARY,
    LINEAR,
    Channels,
    argument,
    channel_axis,
    conv_groups,
    kind,
    propagate,
    shape,
)
from sncl.networks.pruning.trace import Trace


class _Result(NamedTuple):
    """The channels behind an operation, and its inputs whose part in it is understood."""

    channels: Channels | None
    understood: frozenset[fx.Node] = frozenset()


_NOTHING = _Result(None)


def _result(channels: Channels | None, *understood: fx.Node) -> _Result:
    return _Result(channels, frozenset(understood))


class DependencyGraph:
    """Where every unit of a traced network goes."""

    def __init__(self, traced: Trace) -> None:
        self.names, self.values = traced.names, traced.values
        self.groups = ChannelGroups()
        self.channels: dict[fx.Node, Channels] = {}
        for node in traced.graph.nodes:
            if node.op in ("call_function", "output") and kind(node) != "_assert_tensor_metadata":
                self._visit(node)

    @property
    def parameters(self) -> dict[tuple[str, int], Tensor]:
        """The unit at each position of an axis of a parameter, by the parameter's name and the axis."""
        return self.groups.parameters

    def kept(self) -> Tensor:
        """Which units stay: bool [units]."""
        return self.groups.kept(channels.units for channels in self.channels.values())

    def _visit(self, node: fx.Node) -> None:
        found, understood = self._follow(node)
        for source in node.all_input_nodes:
            if source not in understood:
                self._pin(source)
        if found is not None:
            self.channels[node] = found

    def _follow(self, node: fx.Node) -> _Result:
        name = kind(node)
        if name in LINEAR:
            return self._linear(node)
        if name in BATCH_NORMS:
            return self._batch_norm(node)
        if name in BINARY:
            return self._binary(node)
        if name == "cat":
            return self._cat(node)
        if name == "prelu":
            return self._prelu(node)
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or source not in self.channels:
            return _NOTHING
        if name == "getitem":
            return _result(self.channels[source], source) if node.args[1] == 0 else _NOTHING
        found = propagate(node, self.channels[source]) if len(node.all_input_nodes) == 1 else None
        return _NOTHING if found is None else _result(found, source)

    def _pin(self, node: fx.Node) -> None:
        """What this tensor is used for is not understood, so it stays as it is."""
        if node in self.channels:
            self.groups.pin(self.channels[node].units)
        if node in self.names:
            name = self.names[node]
            for axis in range(self.values[name].dim()):
                self.groups.label(name, axis, None)

    # --- layers with weights

    def _linear(self, node: fx.Node) -> _Result:
        """A linear layer or a convolution."""
        source, weight = node.args[:2]
        bias = argument(node, 2, "bias", None)
        if weight not in self.names or (bias is not None and bias not in self.names):
            return _NOTHING
        assert isinstance(source, fx.Node) and isinstance(weight, fx.Node)
        name, groups = self.names[weight], conv_groups(node)
        inputs = self.channels.get(source)
        if inputs is not None and inputs.axis != channel_axis(node, source):
            inputs = None
        rows, columns = self.values[name].shape[:2]
        if groups == 1:
            outputs, zero = self._dense(name, inputs)
        elif inputs is not None and columns == 1:
            outputs, zero = self._depthwise(name, inputs, groups, None if bias is None else self.names[bias])
        else:
            return _NOTHING
        if bias is not None:
            self.groups.label(self.names[bias], 0, outputs)
        understood = [each for each in (weight, bias, None if inputs is None else source) if each is not None]
        if rows == 1:  # never removed, and its axis cannot be told from others
            self.groups.pin(outputs)
            return _result(None, *understood)
        return _result(Channels(channel_axis(node, node), outputs, zero), *understood)

    def _dense(self, weight: str, inputs: Channels | None) -> tuple[Tensor, Tensor]:
        """The output units of a layer without groups, and which of them are zero: none."""
        rows = self.values[weight].shape[0]
        outputs = self.groups.outputs(weight, rows)
        self.groups.label(weight, 1, None if inputs is None else inputs.units)
        if inputs is not None:
            self.groups.dependencies.append(Dependency(inputs, outputs))
        return outputs, torch.zeros(rows, dtype=torch.bool)

    def _depthwise(self, weight: str, inputs: Channels, groups: int, bias: str | None) -> tuple[Tensor, Tensor]:
        """The same for a depthwise convolution, which makes each channel of one channel alone."""
        positions = torch.arange(groups).repeat_interleave(self.values[weight].shape[0] // groups)
        outputs, zero = inputs.units[positions], inputs.zero[positions]
        self.groups.label(weight, 0, outputs)
        if bias is not None:
            zero = zero & (self.values[bias] == 0).cpu()
        return outputs, zero

    def _batch_norm(self, node: fx.Node) -> _Result:
        """BatchNorm with running statistics, in evaluation."""
        source, *statistics = node.args[:5]
        given = self.channels.get(source) if isinstance(source, fx.Node) else None
        tensors = [each for each in statistics if isinstance(each, fx.Node)]
        running = len(statistics) == 4 and all(isinstance(each, fx.Node) for each in statistics[2:])
        training = kind(node) == "batch_norm" and bool(node.args[5])
        if (
            given is None
            or given.axis != 1
            or training
            or not running
            or not all(each in self.names for each in tensors)
        ):
            return _NOTHING
        for each in tensors:
            self.groups.label(self.names[each], 0, given.units)
        assert isinstance(source, fx.Node)
        return _result(given.nonzero(), source, *tensors)

    def _prelu(self, node: fx.Node) -> _Result:
        source, slopes = node.all_input_nodes
        given = self.channels.get(source)
        if given is None or slopes not in self.names or given.axis != 1:
            return _NOTHING
        if self.values[self.names[slopes]].numel() == 1:
            return _result(given, source)
        self.groups.label(self.names[slopes], 0, given.units)
        return _result(given, source, slopes)

    # --- operations on several tensors

    def _binary(self, node: fx.Node) -> _Result:
        """A sum, difference, product or quotient."""
        left, right = node.args[:2]
        a, b = (self.channels.get(side) if isinstance(side, fx.Node) else None for side in (left, right))
        if a is not None and b is not None:
            assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
            return self._elementwise(node, left, right)
        if isinstance(left, fx.Node) and a is not None:
            return self._broadcast(node, left, right)
        if isinstance(right, fx.Node) and b is not None and kind(node) != "div":
            return self._broadcast(node, right, left)
        return _NOTHING

    def _elementwise(self, node: fx.Node, left: fx.Node, right: fx.Node) -> _Result:
        """Two tensors with channels, which are coupled."""
        a, b = self.channels[left], self.channels[right]
        axes = {side.axis - len(shape(each)) for side, each in ((a, left), (b, right))}
        if len(axes) > 1 or len(a.units) != len(b.units):
            return _NOTHING
        self.groups.couple(a.units, b.units)
        return _result(Channels(len(shape(node)) + axes.pop(), a.units, _zeros(node, a.zero, b.zero)), left, right)

    def _broadcast(self, node: fx.Node, source: fx.Node, other: object) -> _Result:
        """A tensor with channels and a number, a parameter or a tensor that is the same for all channels."""
        given, product = self.channels[source], kind(node) in ("mul", "div")
        from_end = given.axis - len(shape(source))
        given = given._replace(axis=len(shape(node)) + from_end)
        if not isinstance(other, fx.Node):
            return _result(given if product or other == 0 else given.nonzero(), source)
        axis = len(shape(other)) + from_end
        if axis < 0 or shape(other)[axis] == 1:
            return _result(given if product else given.nonzero(), source)
        if other not in self.names:
            return _NOTHING
        self.groups.label(self.names[other], axis, given.units)
        zero = (self.values[self.names[other]] == 0).movedim(axis, 0).reshape(len(given.units), -1).all(1).cpu()
        return _result(given._replace(zero=_zeros(node, given.zero, zero)), source, other)

    def _cat(self, node: fx.Node) -> _Result:
        known = [part for part in node.all_input_nodes if part in self.channels]
        every = node.args[0]
        assert isinstance(every, (list, tuple))
        along = int(argument(node, 1, "dim", 0)) % len(shape(node))
        axes = {self.channels[part].axis for part in known}
        if len(axes) != 1 or (along not in axes and len(known) < len(set(every))):
            return _NOTHING
        parts = [self.channels.get(part) or self._unknown(part, along) for part in every if isinstance(part, fx.Node)]
        axis = axes.pop()
        if along == axis:
            units, zero = torch.cat([each.units for each in parts]), torch.cat([each.zero for each in parts])
            return _result(Channels(axis, units, zero), *known)
        for each in parts[1:]:
            self.groups.couple(parts[0].units, each.units)
        return _result(parts[0]._replace(zero=torch.stack([each.zero for each in parts]).all(0)), *known)

    def _unknown(self, node: fx.Node, axis: int) -> Channels:
        """Channels of a tensor of which nothing is known: they stay."""
        units = self.groups.new(shape(node)[axis])
        self.groups.pin(units)
        return Channels(axis, units, torch.zeros(len(units), dtype=torch.bool))


def _zeros(node: fx.Node, a: Tensor, b: Tensor) -> Tensor:
    """Which channels of a sum, difference, product or quotient are zero, by those of its two operands."""
    return {"div": a, "mul": a | b}.get(kind(node), a & b)
