"""An estimator as a file that predicts without sncl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sncl.estimator.inputs import TabularEstimator
from sncl.streams.preprocessing import Preprocessing
from sncl.streams.transforms import Identity
from sncl.training.exclusive import exclusive
from sncl.training.exporting.write import export_learner


class ExportableEstimator(TabularEstimator):
    """An estimator that can be written as a file for other programs."""

    @exclusive
    def export(self, path: str | Path, X: Any = None) -> None:
        """Write what predicts as one file, ``.onnx`` or ``.pt2`` (torch.export), that needs neither sncl nor pickle.

        The model takes numbers before they are standardised and returns logits in the order of ``classes_``. How the
        columns of a table become these numbers is in the file's metadata, beside the names of the classes. Before
        anything is written, the model is compared with the estimator on ``X`` or, without it, on remembered samples.
        """
        self._check_usable()
        names = tuple(map(str, self.classes_.tolist()))
        preprocessing = Preprocessing(
            form="npz" if self.encoder_ is None else "table",
            class_names=names,
            shape=self._spec.shape,
            pixels=False,
            transform=Identity(),  # the scale is in the model
            groups=(tuple(range(len(names))),),
            fingerprint="",
            encoder=self.encoder_,
        )
        samples = None if X is None else self._samples(X)
        outputs = torch.from_numpy(self._outputs)
        export_learner(self.learner_, Path(path), samples, names, preprocessing, outputs)

    def _samples(self, X: Any) -> Tensor:
        """Inputs of what predicts."""
        encoded = self._encoded(self._validated_inputs(X), self.encoder_, learn=False)
        return self._spec.samples(encoded)
