"""What a user passes to a learner, as tensors: arrays and lists are welcome, and what cannot be meant is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Inputs, mapped, named
from sncl.tensors.transfer import upload
from sncl.training.group import check_same_batch

if TYPE_CHECKING:
    from sncl.training.learner import Learner

Labels = Tensor | ArrayLike
Samples = Tensor | ArrayLike | Mapping[str, Tensor | ArrayLike]

FEW_NUMBERS = 100  # of a row, say
MOST_NEW_OUTPUTS = 1000  # at a time: a label that asks for more is no number of a class
NUMBER_THEM = "number the classes 0, 1, 2, ..., or use sncl.ContinualClassifier, which takes labels of any kind"


def as_batch(x: Samples, y: Labels) -> tuple[Inputs, Tensor]:
    """Inputs and labels as tensors, one label for each sample."""
    inputs, labels = as_inputs(x), as_labels(y)
    for name, value in named(inputs).items():
        if value.shape[:1] != labels.shape:
            raise SnclError(
                f"{called(name)} and y need the same number of rows, and y one label a row: got "
                f"{list(value.shape)}, {list(labels.shape)}"
            )
    return inputs, labels


def accepted_batch(learner: Learner, x: Samples, y: Labels) -> tuple[Inputs, Tensor]:
    """A batch on the device that fits the network, or an error before anything is learned of it."""
    if learner.signature.fits(x) and _are_labels(y, x.shape[0]):
        given: Inputs = x
        labels = y
    else:
        given, labels = as_batch(x, y)
        if learner._ready is None:
            learner.prepare(given)
        given = learner.signature.checked(given)
    check_same_batch(learner, given, labels)
    if labels.device.type == "cpu" or learner.grows:  # reading values back would stall a GPU at every step
        low, high = (int(labels),) * 2 if labels.shape[0] == 1 else map(int, labels.aminmax())
        check_labels(low, high, learner.outputs, learner.grows)
        if high >= learner.outputs:
            learner.grow(high + 1)
    return mapped(lambda part: upload(part, learner.device), given), upload(labels, learner.device)


def is_plain(x: Samples) -> TypeGuard[Tensor]:
    """Whether :func:`as_tensor` would return this as it is, and it lies on the host."""
    return type(x) is Tensor and x.is_cpu and not (x.requires_grad or x.is_inference())


def _are_labels(y: Labels, rows: int) -> TypeGuard[Tensor]:
    return is_plain(y) and y.dtype is torch.int64 and y.shape == (rows,)


def as_inputs(x: Samples) -> Inputs:
    """Inputs as a tensor or a dictionary of tensors, in the precision they came in."""
    if not isinstance(x, Mapping):  # what a tokenizer returns is a mapping of its own kind
        return _as_input("x", x)
    if not x:
        raise SnclError("x is a dictionary without a tensor; it names the inputs of the network")
    return {name: _as_input(repr(name), value) for name, value in x.items()}


def _as_input(name: str, value: Any) -> Tensor:
    x = as_tensor(name, value)
    if x.is_complex():
        raise SnclError(f"{name} holds real numbers, not {short(x.dtype)}")
    if x.dim() == 0 or (x.dim() == 1 and x.is_floating_point()):
        raise SnclError(
            f"{name} is one row for each label, [rows, ...], but has the shape {list(x.shape)}; a single row is "
            "x[None], a single feature x[:, None]"
        )
    if x.shape[0] == 0:
        raise SnclError(f"{name} needs at least 1 row, and has the shape {list(x.shape)}")
    return x


def called(name: str) -> str:
    """An input by the name its user gave it: ``x``, or that of one of several."""
    return name if name == "x" else repr(name.removeprefix("x/"))


def as_labels(y: Labels) -> Tensor:
    """Labels as integers."""
    y = as_tensor("y", y)
    if y.dtype == torch.int64:
        return y
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise SnclError(f"labels are integers 0, 1, 2, ...; got {y.dtype}")
    return y.to(torch.int64)


def check_labels(low: int, high: int, outputs: int, grows: bool) -> None:
    """Refuse labels from ``low`` to ``high`` that do not fit a network with so many outputs."""
    if low < 0 or high >= outputs + (MOST_NEW_OUTPUTS if grows else 0):
        remedy = NUMBER_THEM if grows or low < 0 else f"{NUMBER_THEM}; new classes need grow=True"
        raise SnclError(f"label {low if low < 0 else high} does not fit a network with {outputs} outputs: {remedy}")


def has_gaps(x: Tensor) -> bool:
    """Whether inputs have NaN or infinity.

    The sum is a fast first look: it is finite unless an input is not or it overflows.
    """
    return x.is_floating_point() and not math.isfinite(total(x)) and not bool(torch.isfinite(x).all())


def total(x: Tensor) -> float:
    """The sum of all numbers, rounded in one way or another: Python adds up a short row sooner than a tensor does."""
    if x.dim() == 2 and x.numel() <= FEW_NUMBERS and x.layout is torch.strided:
        return sum(map(sum, x.tolist()))
    return x.sum().item()


def refuse_gaps(x: Tensor) -> Tensor:
    """The inputs, unless they have NaN or infinity."""
    if has_gaps(x):
        kind = "NaN" if x.isnan().any() else "infinity"
        raise SnclError(f"x contains {kind}; fill the gaps or leave these rows out")
    return x


def as_tensor(name: str, value: Any) -> Tensor:
    """Numbers of any kind as a tensor, or an error that calls them ``name``."""
    if isinstance(value, Tensor):  # as plain numbers: what they were computed from is not learned, and not kept
        if value.is_inference():
            return value.clone()
        return value.detach() if value.requires_grad else value
    if value is None:
        raise SnclError(f"{name} is missing: there is one input in x and one label in y for every row")
    if isinstance(value, (list, tuple)):
        value = [each.detach().cpu() if isinstance(each, Tensor) else each for each in value]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SnclError(f"{name} cannot be made an array: {error}") from error
    if array.dtype.kind not in "biufc":
        example = array.flat[0] if array.size else value
        what = f"{name} holds numbers, not {array.dtype} such as {str(example)[:40]!r}"
        raise SnclError(f"{what}; {NUMBER_THEM}" if name == "y" else what)
    if array.dtype in (np.uint16, np.uint32, np.uint64):  # which torch hardly knows
        array = array.astype(np.int64)
    return torch.from_numpy(array if array.flags.writeable and array.flags.c_contiguous else array.copy())


def short(dtype: torch.dtype) -> str:
    """Its name without that of the package: ``float32``."""
    return str(dtype).removeprefix("torch.")
