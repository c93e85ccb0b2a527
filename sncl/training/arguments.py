"""What a learner is made from, looked at before anything is made of it: one line says what is allowed."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.methods.table import make
from sncl.streams.transforms import Identity, Transform
from sncl.training.clipping import check_clip
from sncl.training.descent import Descending, MakeOptimizer, check_descent


def check_network(net: Any) -> nn.Module:
    """A network with something to train."""
    if isinstance(net, type):
        raise SnclError(f"`net` is a network, not the class {net.__name__}: make one, {net.__name__}(...)")
    if not isinstance(net, nn.Module):
        raise SnclError(f"`net` is an nn.Module that returns logits, not {_a(net)}")
    if next(net.parameters(), None) is None:
        raise SnclError(f"the network {type(net).__name__} has no parameters, so there is nothing to train")
    return net


def as_method(method: Any) -> Method:
    """A method, or the one of that name with its usual settings."""
    if isinstance(method, str):
        return make(method)
    if isinstance(method, type) and issubclass(method, Method):
        raise SnclError(f"`method` is a method or the name of one, not the class {method.__name__}: make one of it")
    if not isinstance(method, Method):
        raise SnclError(f'`method` is the name of a method such as "sncl", or a Method, not {_a(method)}')
    return method


def as_transform(transform: Any) -> Transform:
    """A transform; without one, inputs are used as they come."""
    if transform is None:
        return Identity()
    if isinstance(transform, type):
        raise SnclError(f"`transform` is a transform, not the class {transform.__name__}: make one of it")
    if not (callable(transform) and hasattr(transform, "eval") and hasattr(transform, "randoms")):
        raise SnclError(f"`transform` is a sncl.streams.transforms.Transform, not {_a(transform)}")
    return transform  # type: ignore[no-any-return]


def check_settings(
    memory: Any, replay: Any, lr: Any, seed: Any, ema: Any, clip: Any, optimizer: Any, grow: Any
) -> None:
    """Refuse numbers that are none and those nothing can be learned with, an optimiser that is made already, and an
    answer that is neither yes nor no."""
    _check_whole("memory", memory, "samples")
    _check_whole("replay", replay, "samples")
    _check_whole("seed", seed)
    for name, value in (("lr", lr), ("ema", ema), ("clip", clip)):
        _check_number(name, value)
    if replay < 1:
        raise SnclError(f"`replay` is at least 1 sample, not {replay}")
    if not 0 < lr < math.inf:
        raise SnclError(f"the step size `lr` is a positive number, not {lr}")
    check_clip(clip)
    if isinstance(optimizer, torch.optim.Optimizer) or not (optimizer is None or callable(optimizer)):
        raise SnclError(
            "`optimizer` makes an optimiser from parameter groups, such as torch.optim.AdamW or `lambda groups: "
            f"torch.optim.SGD(groups, momentum=0.9)`, not {_a(optimizer)}"
        )
    if not isinstance(grow, bool):
        raise SnclError(f"`grow` is True or False, not {_a(grow)}")


def as_optimizer(optimizer: MakeOptimizer | None, momentum: Any, weight_decay: Any) -> MakeOptimizer:
    """What makes the optimiser: SGD with these, or the user's own, which has settings of its own."""
    for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
        _check_number(name, value)
        if value and optimizer is not None:
            raise SnclError(f"`{name}` belongs to the usual optimiser, and `optimizer` is another; give it there")
    check_descent(momentum, weight_decay)
    return optimizer or Descending(float(momentum), float(weight_decay))


def check_growth(grow: bool, method: Method) -> None:
    """Refuse new outputs where the method cannot have them."""
    if grow and not method.grows:
        raise SnclError(
            f"{type(method).__name__} cannot get outputs for new classes; give the network outputs for all classes, "
            "and leave grow=True out"
        )


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SnclError(f"`{name}` is a number, not {_a(value)}")


def _check_whole(name: str, value: Any, what: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SnclError(f"`{name}` is a whole number{' of ' + what if what else ''}, not {_a(value)}")


def _a(value: Any) -> str:
    """A value that cannot be meant, with its type where that is not plain to see."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if isinstance(value, (str, bool, int, float, type(None))) else f"a {type(value).__name__}"
