"""A fixed scale: features by the mean and standard deviation of the samples that were there first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

FARTHEST = 10.0  # standard deviations from the mean: an outlier counts no more than that


@dataclass(frozen=True, eq=False)
class FixedScale:
    """(x - mean) / deviation for each column of [samples, columns], or each channel of images, as float32.

    Computed in double precision, so a column of 10^9 ± 1 keeps its digits. A value further than 10 standard deviations
    away is moved there.
    """

    mean: Tensor  # float64 [features]
    deviation: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """The scale of these samples. Columns that hold nothing but 0 and 1 stay as they are."""
        x = x.double()
        axes = [0, *range(2, x.dim())]
        mean, deviation = x.mean(axes), x.std(axes, correction=0)
        deviation[deviation == 0] = 1
        if x.dim() == 2:
            binary = ((x == 0) | (x == 1)).all(0)
            mean, deviation = mean.masked_fill(binary, 0), deviation.masked_fill(binary, 1)
        return cls(mean, deviation)

    def __call__(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.dim() - 2))
        mean, deviation = (each.to(x.device).view(shape) for each in (self.mean, self.deviation))
        return ((x.double() - mean) / deviation).clamp(-FARTHEST, FARTHEST).float()

    def inverse(self, scaled: Tensor) -> Tensor:
        """Samples that would be scaled to these, float64."""
        shape = (-1, *[1] * (scaled.dim() - 2))
        return scaled.double().cpu() * self.deviation.view(shape) + self.mean.view(shape)

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        mean, deviation = (torch.tensor(state[name], dtype=torch.float64) for name in ("mean", "deviation"))
        if mean.dim() != 1 or mean.shape != deviation.shape:
            raise ValueError("a scale has one mean and one deviation for each feature")
        return cls(mean, deviation)
