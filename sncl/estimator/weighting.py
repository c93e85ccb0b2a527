"""How much the samples of an estimator count: weights of classes, of samples, and both together.

``class_weight="balanced"`` weighs a class by samples / (classes * samples of the class), as scikit-learn does. In a
stream these are the samples and classes met so far, those at hand included; ``fit`` meets all of its samples at once.
A sample keeps in the memory the weight that it came with.

Weights that a user gives, by class or by sample, are relative: their mean over all samples so far counts as 1. Else
weights in the thousands, as of surveys, would be steps a thousand times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import BadInput
from sncl.estimator.state import StatefulEstimator
from sncl.training.weighting import balanced

Weights = NDArray[np.float64]
ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


class WeighingEstimator(StatefulEstimator):
    """An estimator whose samples may count more or less than 1."""

    class_weight: ClassWeight

    def _weights(self, targets: NDArray[np.int64], given: Weights | None) -> Tensor | None:
        """Count these samples by class, and say how much each weighs; None where all of them count 1."""
        seen = np.bincount(targets, minlength=len(self.classes_))
        seen[: len(self._counts)] += self._counts
        self._counts = seen
        if given is None and self.class_weight is None:
            self._weight_sum += len(targets)
            return None
        weights = np.ones(len(targets)) if given is None else given
        if isinstance(self.class_weight, Mapping):
            by_output = np.ones(len(self.classes_))
            by_output[self._outputs] = [self.class_weight.get(label, 1.0) for label in self.classes_.tolist()]
            weights = weights * by_output[targets]
        self._weight_sum += float(weights.sum())
        mean = self._weight_sum / int(self._counts.sum())
        weights = weights / (mean or 1.0)
        if self.class_weight == "balanced":
            weights = weights * balanced(torch.from_numpy(self._counts)).numpy()[targets]
        return torch.from_numpy(weights)

    def _check_weighing(self, given: Any, rows: int) -> Weights | None:
        """The weights of ``rows`` samples as they were given, or an error before anything is learned."""
        chosen = self.class_weight
        if chosen is None and given is None:
            return None
        if isinstance(chosen, Mapping):
            numbers = np.asarray(list(chosen.values()))
            if numbers.dtype.kind not in "biuf" or not (np.isfinite(numbers) & (numbers >= 0)).all():
                raise BadInput(f"`class_weight` names a finite number of at least 0 for each label, not {dict(chosen)}")
        elif chosen not in (None, "balanced"):
            raise BadInput(f'`class_weight` is None, "balanced" or a dictionary of labels and weights, not {chosen!r}')
        if given is None:
            return None
        weights = np.array(given.detach().cpu() if isinstance(given, Tensor) else given)  # a copy, of any kind of array
        if weights.dtype.kind not in "biuf" or weights.shape != (rows,):
            what = f"{list(weights.shape)} of {weights.dtype}"
            raise BadInput(f"`sample_weight` is one number for each of the {rows} samples, not {what}")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise BadInput("`sample_weight` holds finite numbers of at least 0")
        if not weights.any():
            raise BadInput("`sample_weight` is zero for every sample, so there is nothing to learn; leave them out")
        return weights.astype(np.float64)
