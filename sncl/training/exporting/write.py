"""Write a learner as a file that predicts without sncl, once it is known to predict the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.preprocessing import Preprocessing
from sncl.training.checkpoint import write_atomically
from sncl.training.exporting.check import other_predictions, refuse_other_predictions
from sncl.training.exporting.formats import choose_format
from sncl.training.exporting.metadata import metadata_of
from sncl.training.exporting.models import input_name, make_models, raw_zeros
from sncl.training.inputs import Samples, as_inputs

if TYPE_CHECKING:
    from sncl.training.learner import Learner

MOST_CHECKED = 10_000  # remembered samples
CHECKED_AT_ONCE = 500


def export_learner(
    learner: Learner,
    path: Path,
    example: Samples | None = None,
    class_names: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
    outputs: Tensor | None = None,
) -> None:
    """Write the model of a learner to ``path``; without an ``example``, remembered samples are compared.

    ``outputs`` of the network are those of the classes, in their order; None: all.
    """
    form, method = choose_format(None, path), type(learner.method).__name__
    if not path.absolute().parent.is_dir():
        raise SnclError(f"the model is written to a file in a folder that exists, not to {path}")
    with learner.exclusively():
        models = make_models(learner, method, outputs)
        x = _checked_samples(learner, example)
        expected = learner.logits(x).cpu()
    expected = expected if outputs is None else expected[:, outputs]
    names = _names(learner, class_names, expected.shape[1])
    known = preprocessing or learner.preprocessing
    raw = raw_zeros(learner)
    file = form.file(models.small, raw, input_name(raw), metadata_of(names, known, _facts(learner, method)))
    samples = _raw(learner, x).to(raw.dtype)
    with torch.no_grad():
        found = torch.cat([file.predict(part) for part in samples.split(CHECKED_AT_ONCE)])
    difference = float((found - expected).abs().max())
    refuse_other_predictions(other_predictions(expected, found), len(expected), difference)
    write_atomically(path, file.content)


def _checked_samples(learner: Learner, example: Samples | None) -> Tensor:
    """The samples on which a file is compared: those given, or remembered ones and the first two there were."""
    if example is not None:
        x = learner.signature.checked(as_inputs(example))
        assert isinstance(x, Tensor)
        return x.cpu()
    known = learner.signature.example["x"]
    content = {} if learner.memory is None else learner.memory.content()
    if "x" in content:
        known = torch.cat([known, content["x"][:MOST_CHECKED].to(known.dtype)])
    return known.cpu()


def _raw(learner: Learner, x: Tensor) -> Tensor:
    """Samples as the file takes them: those of a run are standardised inside."""
    scale = None if learner.preprocessing is None else learner.preprocessing.scale
    return x if scale is None else scale.inverse(x)


def _names(learner: Learner, class_names: Sequence[str] | None, classes: int) -> list[str]:
    if class_names is None and learner.preprocessing is not None:
        class_names = learner.preprocessing.class_names
    names = list(map(str, range(classes) if class_names is None else class_names))
    if len(names) != classes:
        raise SnclError(f"`class_names` has {len(names)} names, and the network {classes} outputs")
    return names


def _facts(learner: Learner, method: str) -> dict[str, str]:
    """The run that a learner comes from, or its method alone."""
    if learner.origin is None:
        return {"method": method}
    return {name: str(learner.origin[name]) for name in ("stream", "method", "seed")}
