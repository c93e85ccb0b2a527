"""Stronger augmentation than crop and flip, for a memory that is replayed thousands of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sncl.streams.transforms import CropFlip

if TYPE_CHECKING:  # the table of streams names transforms, and is looked at without torch
    from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are
COLOURS = len(LUMA)


@dataclass(frozen=True)
class Strong(CropFlip):
    """Crop and flip, then other colours and a hole, then normalisation.

    Brightness, contrast and saturation are multiplied, in this order, by factors within 1 ± ``jitter``; what leaves
    the range of a pixel is cut off. Contrast is the distance from the image's mean brightness, saturation that from
    each pixel's own. The hole is a square of the mean colour, ``hole`` times as high and wide as the image (12 x 12 of
    32 x 32); its centre may be any pixel, so it may lie over an edge.

    The five random numbers of a sample behind those of crop and flip choose the three factors and the hole's row and
    column.

    Reference: DeVries and Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*, 2017.
    """

    randoms: ClassVar[int] = 8
    jitter: float = 0.4
    hole: float = 0.375

    def __call__(self, x: Tensor, uniform: Tensor) -> Tensor:
        from sncl.tensors.transfer import upload

        uniform = upload(uniform, x.device)
        factors = 1 + self.jitter * (2 * uniform[:, 3:6] - 1)  # [samples, 3]
        coloured = recoloured(self.moved(x, uniform).float() / 255, factors.float())
        mean, std = self.constants(x.device)
        return ((coloured - mean) / std).masked_fill(self._hidden(x, uniform[:, 6:8]), 0.0)

    def _hidden(self, x: Tensor, centres: Tensor) -> Tensor:
        """Which pixels lie in the hole. bool [samples, 1, height, width]"""
        import torch

        bands = []
        for number, length in enumerate(x.shape[2:]):
            size = round(self.hole * length)
            centre = (centres[:, number : number + 1] * length).long().clamp(max=length - 1)
            away = torch.arange(length, device=x.device) - centre + size // 2  # [samples, length]
            bands.append((away >= 0) & (away < size))
        rows, columns = bands
        return (rows[:, :, None] & columns[:, None, :])[:, None]


def recoloured(x: Tensor, factors: Tensor) -> Tensor:
    """Images in [0, 1] with other brightness, contrast and saturation, by three factors for each. [samples, 3]"""
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)  # each [samples, 1, 1, 1]
    x = (x * brightness).clamp(0, 1)
    mean = grey(x).mean((1, 2, 3), keepdim=True)
    x = (mean + (x - mean) * contrast).clamp(0, 1)
    same = grey(x)
    return (same + (x - same) * saturation).clamp(0, 1)


def grey(x: Tensor) -> Tensor:
    """How bright each pixel is, whatever its channels are if they are not three. [samples, 1, height, width]"""
    if x.shape[1] != COLOURS:
        return x.mean(1, keepdim=True)
    red, green, blue = x.split(1, 1)
    found: Tensor = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    return found
