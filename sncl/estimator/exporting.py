"""An estimator as a file that predicts without sncl."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sncl.estimator.state import StatefulEstimator
from sncl.streams.preprocessing import Preprocessing
from sncl.streams.transforms import Identity
from sncl.training.exporting.write import export_learner


def export_estimator(model: StatefulEstimator, path: Path, samples: Tensor | None) -> None:
    """Write the model of an estimator, compared on ``samples`` or on remembered ones."""
    with model.exclusively():
        model._check_usable()
        names = tuple(map(str, model.classes_.tolist()))
        shape = model._spec.shape
        preprocessing = Preprocessing(
            form="npz",
            class_names=names,
            shape=shape,
            pixels=False,
            transform=Identity(),  # the scale is in the model
            groups=(tuple(range(len(names))),),
            fingerprint="",
        )
        outputs = torch.from_numpy(model._outputs)
        export_learner(model.learner_, path, samples, names, preprocessing, outputs)
