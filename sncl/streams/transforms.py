"""Whole-batch image operations: how a stored uint8 image becomes the input of a network.

A permutation of pixels, a nearest-neighbour rotation, a crop with zero padding and a flip all say, for every pixel of
the result, which pixel of the image goes there, or none. They are therefore one operation, :func:`remap`, with
different pixel maps: one gather, static shapes, nothing read back to the host.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # the table of streams names transforms, and is looked at without torch
    import torch
    from torch import Tensor

    from sncl.tensors.fields import Inputs

IMAGE_AXES = 4


def remap(x: Tensor, pixels: Tensor, blanks: bool = True) -> Tensor:
    """Put pixel ``pixels[..., p]`` of each image at position ``p``; the value ``height * width`` stands for blank (0).

    ``x`` is [samples, channels, height, width]; ``pixels`` is [height * width] (one map for all samples) or
    [samples, height * width] (one for each). ``blanks=False`` promises that no pixel is blank, as in a permutation.
    """
    from torch.nn.functional import pad

    flat = x.flatten(2)  # [samples, channels, pixels]
    if blanks:
        flat = pad(flat, (0, 1))  # the last one blank
    index = pixels if pixels.dim() == 1 else pixels[:, None]
    return flat.gather(2, index.expand(x.shape[0], x.shape[1], -1)).reshape(x.shape)


def rotation_map(angles: Tensor, height: int, width: int) -> Tensor:
    """Pixel maps of counter-clockwise nearest-neighbour rotations about the centre: degrees [n] -> [n, height * width].

    Equal, pixel for pixel, to ``PIL.Image.rotate(angle)``, which the benchmarks' definition goes through: the affine
    map back to the source is evaluated at pixel centres in 16.16 fixed point, and whole quarter turns that keep the
    shape are exact transpositions. Computed on the host so that every device shows the same images.
    """
    import torch

    turn = angles.to("cpu", torch.float64).remainder(360.0)  # [n]
    radians = turn * (-math.pi / 180.0)
    cos, sin = radians.cos().round(decimals=15), radians.sin().round(decimals=15)
    from_x = _fixed(cos * (0.5 - width / 2) + sin * (0.5 - height / 2) + width / 2)  # source x of the first pixel
    from_y = _fixed(-sin * (0.5 - width / 2) + cos * (0.5 - height / 2) + height / 2)
    column, row = torch.arange(width, dtype=torch.int32), torch.arange(height, dtype=torch.int32)[:, None]
    cos_, sin_, minus_sin = (_fixed(value)[:, None, None] for value in (cos, sin, -sin))
    x = (from_x[:, None, None] + column * cos_ + row * sin_) >> 16  # [n, height, width]
    y = (from_y[:, None, None] + column * minus_sin + row * cos_) >> 16
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    pixels = torch.where(inside, y * width + x, height * width).flatten(1).long()
    plain = torch.arange(height * width).reshape(height, width)
    exact = {0.0: plain, 180.0: plain.rot90(2)}
    if height == width:
        exact |= {90.0: plain.rot90(1), 270.0: plain.rot90(3)}
    for angle, turned in exact.items():
        pixels[turn == angle] = turned.flatten()
    return pixels.to(angles.device)


def _fixed(value: Tensor) -> Tensor:
    return (value * 65536.0 + 0.5).floor().int()


class Transform(ABC):
    """How a stored image becomes network input, in training (with random numbers) and in evaluation (without).

    The random numbers come from outside, ``randoms`` of them for each sample, so that a transform has no state and the
    same numbers give the same result on every device.
    """

    randoms: ClassVar[int] = 0

    @abstractmethod
    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        """The training form of ``x`` [samples, channels, height, width]; ``uniform`` [samples, randoms]: in [0, 1)."""

    @abstractmethod
    def eval(self, x: Tensor) -> Tensor:
        """The evaluation form."""


def training_input(transform: Transform, x: Inputs, uniform: Tensor) -> Inputs:
    """The training form of inputs; of several tensors those that are images, with four axes, share their numbers."""
    from torch import Tensor

    from sncl.tensors.fields import mapped

    if isinstance(x, Tensor):
        return transform(x, uniform)
    return mapped(lambda part: transform(part, uniform) if part.dim() == IMAGE_AXES else part, x)


def eval_input(transform: Transform, x: Inputs) -> Inputs:
    """The evaluation form, in the same way."""
    from torch import Tensor

    from sncl.tensors.fields import mapped

    if isinstance(x, Tensor):
        return transform.eval(x)
    return mapped(lambda part: transform.eval(part) if part.dim() == IMAGE_AXES else part, x)


@dataclass(frozen=True)
class Identity(Transform):
    """The input as it is: for data that the caller has prepared."""

    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        return x

    def eval(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Unit(Transform):
    """Bytes to numbers in [0, 1], then ``(x - mean) / std``; as they are nothing is done beyond the first."""

    mean: float = 0.0
    std: float = 1.0

    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        return self.eval(x)

    def eval(self, x: Tensor) -> Tensor:
        import torch

        values = x.to(torch.float32, copy=True).div_(255)
        return values if (self.mean, self.std) == (0.0, 1.0) else values.sub_(self.mean).div_(self.std)


@dataclass(frozen=True)
class CropFlip(Transform):
    """A random crop out of the zero-padded image, a horizontal flip half of the time, then normalisation.

    The padding is black, not average: zeros are put in before ``(x / 255 - mean) / std``. The three random numbers of
    a sample choose the vertical shift, the horizontal shift (both in ``-padding .. padding``) and the flip.
    """

    randoms: ClassVar[int] = 3
    padding: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    _constants: dict[torch.device, tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        from sncl.tensors.transfer import upload

        return self.eval(self.moved(x, upload(uniform, x.device)))

    def moved(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Images cropped and flipped, by the first three numbers of each."""
        import torch

        height, width = x.shape[2:]
        steps = 2 * self.padding + 1
        shift = (uniform[:, :2] * steps).long().clamp(max=steps - 1) - self.padding  # [samples, 2]
        column = torch.arange(width, device=x.device)
        column = torch.where(uniform[:, 2:3] < 0.5, width - 1 - column, column)  # [samples, width]
        column = (column + shift[:, 1:])[:, None, :]  # [samples, 1, width]
        row = (torch.arange(height, device=x.device) + shift[:, :1])[:, :, None]  # [samples, height, 1]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        pixels = torch.where(inside, row * width + column, height * width).flatten(1)
        return remap(x, pixels)

    def eval(self, x: Tensor) -> Tensor:
        mean, std = self.constants(x.device)
        return (x.float() / 255 - mean) / std

    def constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and std on the device, copied there once: a step under a CUDA graph may not copy from the host."""
        import torch

        if device not in self._constants:
            mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (self.mean, self.std))
            self._constants[device] = (mean, std)
        return self._constants[device]
