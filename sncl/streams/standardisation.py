"""Features of any scale brought to mean 0 and standard deviation 1, without a look at later data.

A stream of the user's data is standardised once, by its first samples; a learner on a live stream updates mean and
standard deviation with every batch. Images of bytes are brought to the brightness that step sizes were chosen for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.streams.scale import FARTHEST, FixedScale
from sncl.streams.stream import Stream
from sncl.streams.transforms import Transform, Unit
from sncl.tensors.fields import Fields

FIRST_PART = 10  # of a stream without tasks: one in so many samples
MNIST_PIXELS, MNIST_MEAN, MNIST_STD = 784, 0.1307, 0.3081
BRIGHT = 1.5  # times the sum of squares of an image of MNIST
EPSILON = torch.finfo(torch.float64).eps
LOOKED_AT = 100_000  # images at most, evenly spaced


class RunningScale(Transform):
    """(x - mean) / standard deviation, with both over all samples that :meth:`update` was given, for each feature.

    Features are the columns of [samples, features], or the channels of images [samples, channels, ...]. A feature that
    has not varied so far is only centred. Samples of a memory are stored as they came and go through the same scale as
    new ones, whenever they were seen. Means and squares are joined in double precision, batch by batch
    (Chan, Golub and LeVeque, 1979), so a feature of 10^9 ± 1 keeps its digits; the result has the type ``dtype``.
    Features that are 0 or 1 by their nature are ``unscaled``.
    """

    _arrays: tuple[NDArray[np.float64], ...] | None = None  # the tensors for NumPy, once single samples come

    def __init__(
        self,
        features: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        unscaled: Sequence[int] = (),
    ) -> None:
        self.dtype = dtype
        self.unscaled = torch.tensor(unscaled, dtype=torch.int64, device=device) if unscaled else None
        self.rows = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(features, dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.mean)  # sum of squared distances from the mean
        self.factor = torch.ones_like(self.mean)  # one over the standard deviation

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arrays": None}  # a copy has memory of its own

    def update(self, x: Tensor) -> None:
        """Include these samples. Tensors change in place."""
        if x.dim() == 2 and x.shape[0] == 1 and self.mean.is_cpu:
            self._include(x.cpu().numpy()[0].astype(np.float64))
            return
        values = x.to(self.mean.device, torch.float64).movedim(1, -1).flatten(0, -2)  # [values, features]
        if self.unscaled is not None:
            values = values.index_fill(1, self.unscaled, 0.0)  # so that their mean stays 0 and their factor 1
        mean = values.mean(0)
        total = self.rows + len(values)
        away = mean - self.mean
        self.squares += (values - mean).square().sum(0) + away.square() * self.rows * len(values) / total
        self.mean += away * len(values) / total
        self.rows.copy_(total)
        self._rescale()

    @np.errstate(all="ignore")
    def _include(self, values: NDArray[np.float64]) -> None:
        """One sample more, by the same operations without those that change nothing: NumPy begins one sooner."""
        if self.unscaled is not None:
            values[self.unscaled.numpy()] = 0.0
        if self._arrays is None:
            self._arrays = tuple(each.numpy() for each in (self.rows, self.mean, self.squares, self.factor))
        rows, mean, squares, factor = self._arrays
        before = rows.item()
        total, away = before + 1, values - mean
        squares += away * away * before / total
        mean += away / total
        rows[...] = total
        variance = squares / total
        constant = variance <= np.square(total * mean * EPSILON)
        np.divide(1, np.sqrt(variance), out=factor)
        factor[constant] = 1.0

    def _rescale(self) -> None:
        rows = self.rows.clamp(min=1)
        variance = self.squares / rows
        constant = variance <= (rows * self.mean * EPSILON).square()  # up to rounding
        self.factor.copy_(torch.where(constant, 1.0, variance.rsqrt()))

    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        return self.eval(x)

    def eval(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.dim() - 2))
        scaled = (x - self.mean.view(shape)) * self.factor.view(shape)
        return scaled.clamp(-FARTHEST, FARTHEST).to(self.dtype)

    def state(self) -> Fields:
        return {"rows": self.rows, "mean": self.mean, "squares": self.squares}

    def load(self, state: Fields) -> None:
        self.rows.copy_(state["rows"])
        self.mean.copy_(state["mean"])
        self.squares.copy_(state["squares"])
        self._rescale()


def first_samples(stream: Stream) -> Tensor:
    """The samples that the first task trains on or, of a stream without tasks, its first tenth."""
    first = stream.phases[0].rows
    return first if stream.sizes is None else first[: max(len(first) // FIRST_PART, 2)]


def brightness_transform(x: Tensor) -> Unit:
    """How images of bytes [samples, channels, height, width] go into a network that does not normalise by itself.

    The largest step size that gradient descent stands is proportional to one over the largest eigenvalue of the second
    moment of the inputs, and the settings here were chosen on images of few bright pixels. Images with a larger sum of
    squares than MNIST's (by half) get its mean and standard deviation; all others stay as they are.
    """
    counts = x[:: -(-len(x) // LOOKED_AT)].flatten().bincount(minlength=256).double()
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = float((counts * values).sum() / counts.sum())
    std = math.sqrt(float((counts * (values - mean).square()).sum() / counts.sum()))
    usual = MNIST_PIXELS * (MNIST_MEAN**2 + MNIST_STD**2)
    if x[0].numel() * (mean**2 + std**2) <= BRIGHT * usual:
        return Unit()
    ratio = std / MNIST_STD if std else 1.0
    return Unit(mean - MNIST_MEAN * ratio, ratio)


def standardise(stream: Stream) -> tuple[Stream, FixedScale]:
    """The stream with mean 0 and standard deviation 1 in each column, or each channel of an image; and how.

    Only the samples that the first task trains on are looked at or, of a stream without tasks, its first tenth: for
    mean and standard deviation, and for which columns hold nothing but 0 and 1.
    """
    scale = FixedScale.of(stream.x[first_samples(stream)])
    return replace(stream, x=scale(stream.x), test_x=scale(stream.test_x)), scale
