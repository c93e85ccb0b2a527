"""Follow the channels of a network from the map that makes them to the maps that read them.

The network is traced once with ``torch.export`` into plain tensor operations, so modules, functions, hooks and in-place
operations look alike. A *unit* is one channel that a linear map or a convolution makes. Every tensor of the trace says,
where it can, which unit lies at each place of its channel axis and which places are zero whatever the input; every
parameter says which of its rows or columns belong to which unit. Units that meet in a sum, a product or a shared
parameter are tied: they stay or go together. A unit that is read by anything unknown is pinned: it stays.

What is not understood is therefore only ever kept.
"""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from sncl.tensors.fields import Fields

LINEAR = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
NORMS = frozenset({"batch_norm", "_native_batch_norm_legit_no_training"})
_SAME = frozenset({"dropout", "clone", "contiguous", "alias", "detach", "neg"})
_AVERAGES = frozenset({*(f"{kind}avg_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)), "mean", "sum"})
_LARGEST = frozenset({"max_pool1d", "max_pool2d", "max_pool3d", "amax"})
_MOVES = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose",
    "movedim", "expand", "select", "slice",
})  # fmt: skip
_BENDS = frozenset(
    {"gelu", "silu", "hardswish", "tanh", "elu", "celu", "selu", "mish", "abs", "square", "to", "_to_copy"}
)
_LIFTS = frozenset({"sigmoid", "hardsigmoid", "softplus", "exp"})  # of zero they are not zero
_LIMITS = frozenset({"hardtanh", "clamp", "relu6"})
_BINARY = frozenset({"add", "sub", "mul", "div"})
COMMUTES = _SAME | _AVERAGES | _MOVES  # f(s x) = s f(x) for a factor s of each channel
COMMUTES_IF_POSITIVE = _LARGEST | {"relu", "leaky_relu"}
ELEMENTWISE = _SAME | {"relu", "leaky_relu"}


class Channels(NamedTuple):
    """The channels of a tensor: their axis, the unit at each place along it, and which places are always zero."""

    axis: int
    units: Tensor  # int64 [places]
    zero: Tensor  # bool [places]

    def at(self, axis: int, places: Tensor) -> Channels:
        return Channels(axis, self.units[places], self.zero[places])

    def nonzero(self) -> Channels:
        return self._replace(zero=torch.zeros_like(self.zero))


class Reading(NamedTuple):
    """A linear map: the channels it reads and the units it makes."""

    read: Channels
    made: Tensor


def kind(node: fx.Node) -> str:
    """The name of an operation, "relu" for aten.relu.default."""
    if node.target is operator.getitem:
        return "getitem"
    parts = str(node.target).split(".")
    return parts[1] if node.op == "call_function" and parts[0] == "aten" else ""


def shape(node: fx.Node) -> torch.Size:
    value: Tensor = node.meta["val"]
    return value.shape


def argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def groups_of(node: fx.Node) -> int:
    """Of a convolution; a linear map is one group."""
    return 1 if kind(node) == "linear" else int(argument(node, 6, "groups", 1))


def reading_axis(node: fx.Node) -> int:
    """The axis along which a linear map or convolution reads its input."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return len(shape(source)) - 1 if kind(node) == "linear" else 1


def through(node: fx.Node, given: Channels) -> Channels | None:
    """Channels behind an operation on one tensor, or None where they are no longer told apart."""
    name = kind(node)
    if name in _SAME | _BENDS | {"relu", "leaky_relu"}:
        return given
    if name in _LIFTS:
        return given.nonzero()
    if name in _LIMITS:
        usual = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0), "clamp": (None, None)}[name]
        low, high = (argument(node, place, "", usual[place - 1]) for place in (1, 2))
        if node.kwargs or isinstance(low, fx.Node) or isinstance(high, fx.Node):
            return None
        through_zero = (low is None or low <= 0) and (high is None or high >= 0)
        return given if through_zero else given.nonzero()
    if name in ("mean", "sum", "amax"):
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return _reduced(node, given, len(shape(source)))
    if name in _AVERAGES | _LARGEST:
        return given if given.axis == 1 and len(shape(node)) == int(name[-2]) + 2 else None
    return _moved(node, given) if name in _MOVES else None


def _reduced(node: fx.Node, given: Channels, dims: int) -> Channels | None:
    over = argument(node, 1, "dim", None)
    if over is None:
        return None
    gone = {axis % dims for axis in (over if isinstance(over, (list, tuple)) else [over])}
    if given.axis in gone or not gone:
        return None
    keeps = bool(argument(node, 2, "keepdim", False))
    return given._replace(axis=given.axis - (0 if keeps else sum(axis < given.axis for axis in gone)))


def _moved(node: fx.Node, given: Channels) -> Channels | None:
    """Behind an operation that only moves numbers: it is run on the places themselves to see where they go."""
    source, *rest = node.args
    assert isinstance(source, fx.Node) and callable(node.target)
    count, dims = len(given.units), len(shape(source))
    if count < 2:  # every axis would do
        return None
    places = torch.arange(count).reshape(-1, *[1] * (dims - 1 - given.axis)).expand(shape(source)).contiguous()
    moved: Tensor = node.target(places, *rest, **node.kwargs)
    for axis in range(moved.dim()):
        lines = moved.movedim(axis, 0).reshape(moved.shape[axis], -1)
        if bool((lines == lines[:, :1]).all()):
            times = torch.bincount(lines[:, 0], minlength=count)
            return given.at(axis, lines[:, 0]) if bool((times == times[0]).all()) else None
    return None


@dataclass
class Trace:
    """The operations of a network; ``names`` says which parameter or buffer a placeholder stands for."""

    graph: fx.Graph
    names: dict[fx.Node, str]
    values: Fields

    def users(self, name: str) -> list[fx.Node]:
        """Every operation that reads a parameter."""
        return [user for node, each in self.names.items() if each == name for user in node.users]


def trace(net: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Trace:
    """Every operation of one forward pass, in-place ones as if they were not."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.export.export(net, arguments, keywords, strict=False)
        if any(_changes_its_input(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
    values: Fields = dict(net.named_parameters(remove_duplicate=False)) | dict(
        net.named_buffers(remove_duplicate=False)
    )
    first: dict[int, str] = {}  # a tensor with several names goes by its first one
    for name, value in values.items():
        first.setdefault(id(value), name)
    signature = program.graph_signature
    known = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    names = {node: first[id(values[known[node.name]])] for node in placeholders if node.name in known}
    return Trace(program.graph, names, values)


def _changes_its_input(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


class Flow:
    """Where every unit of a traced network goes."""

    def __init__(self, traced: Trace) -> None:
        self.names, self.values = traced.names, traced.values
        self.units = 0
        self.channels: dict[fx.Node, Channels] = {}
        self.owned: dict[tuple[str, int], Tensor] = {}  # (parameter, axis) -> the unit at each place
        self.readings: list[Reading] = []
        self._fixed: set[tuple[str, int]] = set()  # axes of parameters that must stay whole
        self._ties: list[tuple[Tensor, Tensor]] = []
        self._pinned: list[Tensor] = []
        for node in traced.graph.nodes:
            if node.op in ("call_function", "output"):
                self._visit(node)

    def kept(self) -> Tensor:
        """Which units stay: those whose value reaches the output, and one wherever else nothing would be left."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        if not self.units:
            return torch.zeros(0, dtype=torch.bool)
        none = torch.zeros(0, dtype=torch.int64)
        a, b = (torch.cat([none, *(tie[side] for tie in self._ties)]).numpy() for side in (0, 1))
        graph = coo_array((torch.ones(len(a)).numpy(), (a, b)), shape=(self.units, self.units))
        family = torch.from_numpy(connected_components(graph, directed=False)[1]).long()  # [units]
        alive = torch.zeros(self.units, dtype=torch.bool)  # by family
        alive[family[torch.cat([none, *self._pinned])]] = True
        before = -1
        while before != (before := int(alive.sum())):
            for read, made in self.readings:
                if alive[family[made]].any():
                    alive[family[read.units[~read.zero]]] = True
        for units in (*self.owned.values(), *(channels.units for channels in self.channels.values())):
            if not alive[family[units]].any():
                alive[family[units[0]]] = True
        return alive[family]

    def _visit(self, node: fx.Node) -> None:
        name = kind(node)
        found: Channels | None = None
        settled: set[fx.Node] = set()  # inputs whose part in this operation is understood
        if name == "_assert_tensor_metadata":
            return
        if name in LINEAR:
            found, settled = self._map(node)
        elif name in NORMS:
            found, settled = self._norm(node)
        elif name in _BINARY:
            found, settled = self._pair(node)
        elif name == "cat":
            found, settled = self._cat(node)
        elif name == "prelu":
            found, settled = self._prelu(node)
        elif name == "getitem":
            source = node.args[0]
            if isinstance(source, fx.Node) and source in self.channels and node.args[1] == 0:
                found, settled = self.channels[source], {source}
        elif len(node.all_input_nodes) == 1 and node.args and node.args[0] in self.channels:
            source = node.all_input_nodes[0]
            found = through(node, self.channels[source])
            settled = {source} if found is not None else set()
        for source in node.all_input_nodes:
            if source not in settled:
                self._give_up(source)
        if found is not None:
            self.channels[node] = found

    def _give_up(self, node: fx.Node) -> None:
        """What this tensor is used for is not understood, so it stays as it is."""
        if node in self.channels:
            self._pinned.append(self.channels[node].units)
        if node in self.names:
            name = self.names[node]
            for axis in range(self.values[name].dim()):
                self._own(name, axis, None)

    def _own(self, name: str, axis: int, units: Tensor | None) -> None:
        """Say which units lie along an axis of a parameter; None: it must stay whole."""
        place = (name, axis)
        if units is None:
            self._fixed.add(place)
        elif place in self.owned:
            self._ties.append((self.owned[place], units))
        else:
            self.owned[place] = units
        if place in self._fixed and place in self.owned:
            self._pinned.append(self.owned[place])

    def _made(self, name: str) -> Tensor:
        """The units of a map's rows, the same ones each time it runs."""
        if (name, 0) not in self.owned:
            self._own(name, 0, self._fresh(self.values[name].shape[0]))
        return self.owned[name, 0]

    def _fresh(self, count: int) -> Tensor:
        self.units += count
        return torch.arange(self.units - count, self.units)

    def _map(self, node: fx.Node) -> tuple[Channels | None, set[fx.Node]]:
        source, weight = node.args[:2]
        bias = argument(node, 2, "bias", None)
        if weight not in self.names or (bias is not None and bias not in self.names):
            return None, set()
        assert isinstance(source, fx.Node) and isinstance(weight, fx.Node)
        name, groups = self.names[weight], groups_of(node)
        read = self.channels.get(source)
        if read is not None and read.axis != reading_axis(node):
            read = None
        settled = {weight} if bias is None else {weight, bias}
        rows, columns = self.values[name].shape[:2]
        if groups == 1:
            made = self._made(name)
            self._own(name, 1, None if read is None else read.units)
            zero = torch.zeros(rows, dtype=torch.bool)
        elif read is not None and columns == 1:  # depthwise: a channel is made of one channel alone
            places = torch.arange(groups).repeat_interleave(rows // groups)
            made, zero = read.units[places], read.zero[places]
            self._own(name, 0, made)
            if bias is not None:
                zero = zero & (self.values[self.names[bias]] == 0).cpu()
        else:
            return None, set()
        if bias is not None:
            self._own(self.names[bias], 0, made)
        if read is not None:
            settled.add(source)
            if groups == 1:
                self.readings.append(Reading(read, made))
        if rows == 1:  # never removed, and its axis cannot be told from others
            self._pinned.append(made)
            return None, settled
        axis = len(shape(node)) - 1 if kind(node) == "linear" else 1
        return Channels(axis, made, zero), settled

    def _norm(self, node: fx.Node) -> tuple[Channels | None, set[fx.Node]]:
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
            or any(each not in self.names for each in tensors)
        ):
            return None, set()
        for each in tensors:
            self._own(self.names[each], 0, given.units)
        assert isinstance(source, fx.Node)
        return given.nonzero(), {source, *tensors}

    def _pair(self, node: fx.Node) -> tuple[Channels | None, set[fx.Node]]:
        """A sum, difference, product or quotient."""
        name, (left, right) = kind(node), node.args[:2]
        product = name in ("mul", "div")
        a, b = (self.channels.get(side) if isinstance(side, fx.Node) else None for side in (left, right))
        if a is None and (b is None or name == "div"):
            return None, set()
        if isinstance(left, fx.Node) and isinstance(right, fx.Node) and a is not None and b is not None:
            axes = {side.axis - len(shape(each)) for side, each in ((a, left), (b, right))}
            if len(axes) > 1 or len(a.units) != len(b.units):
                return None, set()
            self._ties.append((a.units, b.units))
            zero = a.zero if name == "div" else a.zero | b.zero if product else a.zero & b.zero
            return Channels(len(shape(node)) + axes.pop(), a.units, zero), {left, right}
        labelled, other, given = (left, right, a) if a is not None else (right, left, b)
        assert isinstance(labelled, fx.Node) and given is not None
        from_end = given.axis - len(shape(labelled))
        given = given._replace(axis=len(shape(node)) + from_end)
        if not isinstance(other, fx.Node):
            return given if product or other == 0 else given.nonzero(), {labelled}
        axis = len(shape(other)) + from_end
        if axis < 0 or shape(other)[axis] == 1:  # the same for all channels
            return given if product else given.nonzero(), {labelled}
        if other not in self.names:
            return None, set()
        self._own(self.names[other], axis, given.units)
        silent = (self.values[self.names[other]] == 0).movedim(axis, 0).reshape(len(given.units), -1).all(1).cpu()
        zero = given.zero if name == "div" else given.zero | silent if product else given.zero & silent
        return given._replace(zero=zero), {labelled, other}

    def _prelu(self, node: fx.Node) -> tuple[Channels | None, set[fx.Node]]:
        source, slopes = node.all_input_nodes
        given = self.channels.get(source)
        if given is None or slopes not in self.names or given.axis != 1:
            return None, set()
        if self.values[self.names[slopes]].numel() == 1:
            return given, {source}
        self._own(self.names[slopes], 0, given.units)
        return given, {source, slopes}

    def _cat(self, node: fx.Node) -> tuple[Channels | None, set[fx.Node]]:
        parts = [part for part in node.all_input_nodes if part in self.channels]
        every = node.args[0]
        assert isinstance(every, (list, tuple))
        along = int(argument(node, 1, "dim", 0)) % len(shape(node))
        axes = {self.channels[part].axis for part in parts}
        if len(axes) != 1 or (along not in axes and len(parts) < len(set(every))):
            return None, set()
        known = [self.channels.get(part) or self._opaque(part, along) for part in every if isinstance(part, fx.Node)]
        axis = axes.pop()
        if along == axis:
            units, zero = torch.cat([each.units for each in known]), torch.cat([each.zero for each in known])
            return Channels(axis, units, zero), set(parts)
        for each in known[1:]:
            self._ties.append((known[0].units, each.units))
        return known[0]._replace(zero=torch.stack([each.zero for each in known]).all(0)), set(parts)

    def _opaque(self, node: fx.Node, axis: int) -> Channels:
        """Channels of a tensor of which nothing is known: they stay."""
        units = self._fresh(shape(node)[axis])
        self._pinned.append(units)
        return Channels(axis, units, torch.zeros(len(units), dtype=torch.bool))
