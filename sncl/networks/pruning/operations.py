"""What each traced operation does to the channels of its input.

Every channel is made by a linear layer or a convolution. A *unit* is the number of such an output channel, counted over
the whole network. :class:`Channels` says which units lie along an axis of a tensor.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

LINEAR = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
BATCH_NORMS = frozenset({"batch_norm", "_native_batch_norm_legit_no_training"})
BINARY = frozenset({"add", "sub", "mul", "div"})
_COPIES = frozenset({"dropout", "clone", "contiguous", "alias", "detach", "neg"})
_AVERAGES = frozenset({*(f"{kind}avg_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)), "mean", "sum"})
_MAXIMA = frozenset({"max_pool1d", "max_pool2d", "max_pool3d", "amax"})
_RESHAPES = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose",
    "movedim", "expand", "select", "slice",
})  # fmt: skip
_RECTIFIERS = frozenset({"relu", "leaky_relu"})
_ZERO_TO_ZERO = frozenset(
    {"gelu", "silu", "hardswish", "tanh", "elu", "celu", "selu", "mish", "abs", "square", "to", "_to_copy"}
)
_ZERO_TO_NONZERO = frozenset({"sigmoid", "hardsigmoid", "softplus", "exp"})
_CLAMPS = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0), "clamp": (None, None)}  # their default limits
COMMUTES = _COPIES | _AVERAGES | _RESHAPES  # f(s x) = s f(x) for a factor s of each channel
COMMUTES_IF_POSITIVE = _MAXIMA | _RECTIFIERS
ELEMENTWISE = _COPIES | _RECTIFIERS


class Channels(NamedTuple):
    """The channels of a tensor: their axis, the unit at each position along it, and which positions are always zero."""

    axis: int
    units: Tensor  # int64 [positions]
    zero: Tensor  # bool [positions]

    def at(self, axis: int, positions: Tensor) -> Channels:
        return Channels(axis, self.units[positions], self.zero[positions])

    def nonzero(self) -> Channels:
        return self._replace(zero=torch.zeros_like(self.zero))


def kind(node: fx.Node) -> str:
    """The name of an operation, "relu" for aten.relu.default."""
    if node.target is operator.getitem:
        return "getitem"
    parts = str(node.target).split(".")
    return parts[1] if node.op == "call_function" and parts[0] == "aten" else ""


def shape(node: fx.Node) -> torch.Size:
    value: Tensor = node.meta["val"]
    return value.shape


def argument(node: fx.Node, position: int, name: str, default: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def conv_groups(node: fx.Node) -> int:
    """The groups of a convolution; a linear layer has one."""
    return 1 if kind(node) == "linear" else int(argument(node, 6, "groups", 1))


def channel_axis(node: fx.Node, of: fx.Node) -> int:
    """The axis of the channels in ``of``, the input or the output of a linear layer or convolution."""
    return len(shape(of)) - 1 if kind(node) == "linear" else 1


def propagate(node: fx.Node, given: Channels) -> Channels | None:
    """The channels behind an operation on one tensor; None where they are no longer told apart."""
    name = kind(node)
    if name in _COPIES | _ZERO_TO_ZERO | _RECTIFIERS:
        return given
    if name in _ZERO_TO_NONZERO:
        return given.nonzero()
    if name in _CLAMPS:
        return _clamped(node, given)
    if name in ("mean", "sum", "amax"):
        return _reduced(node, given)
    if name in _AVERAGES | _MAXIMA:
        return given if given.axis == 1 and len(shape(node)) == int(name[-2]) + 2 else None
    return _reshaped(node, given) if name in _RESHAPES else None


def _clamped(node: fx.Node, given: Channels) -> Channels | None:
    defaults = _CLAMPS[kind(node)]
    low, high = (argument(node, position, "", defaults[position - 1]) for position in (1, 2))
    if node.kwargs or isinstance(low, fx.Node) or isinstance(high, fx.Node):
        return None
    keeps_zero = (low is None or low <= 0) and (high is None or high >= 0)
    return given if keeps_zero else given.nonzero()


def _reduced(node: fx.Node, given: Channels) -> Channels | None:
    """Behind a mean, sum or maximum over some axes."""
    source, over = node.args[0], argument(node, 1, "dim", None)
    assert isinstance(source, fx.Node)
    if over is None:
        return None
    dims = len(shape(source))
    reduced = {axis % dims for axis in (over if isinstance(over, (list, tuple)) else [over])}
    if given.axis in reduced or not reduced:
        return None
    keeps = bool(argument(node, 2, "keepdim", False))
    return given._replace(axis=given.axis - (0 if keeps else sum(axis < given.axis for axis in reduced)))


def _reshaped(node: fx.Node, given: Channels) -> Channels | None:
    """Behind an operation that only moves numbers: it is run on the positions themselves to see where they go."""
    source, *rest = node.args
    assert isinstance(source, fx.Node) and callable(node.target)
    count, dims = len(given.units), len(shape(source))
    if count < 2:  # every axis would do
        return None
    positions = torch.arange(count).reshape(-1, *[1] * (dims - 1 - given.axis)).expand(shape(source)).contiguous()
    moved: Tensor = node.target(positions, *rest, **node.kwargs)
    for axis in range(moved.dim()):
        lines = moved.movedim(axis, 0).reshape(moved.shape[axis], -1)
        if bool((lines == lines[:, :1]).all()):
            times = torch.bincount(lines[:, 0], minlength=count)
            return given.at(axis, lines[:, 0]) if bool((times == times[0]).all()) else None
    return None
