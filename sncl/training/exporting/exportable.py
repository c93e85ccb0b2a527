"""What a learner knows of where it comes from, and how it leaves: as a file that predicts without sncl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sncl.streams.preprocessing import Preprocessing
from sncl.training.inputs import Samples

if TYPE_CHECKING:
    from sncl.training.learner import Learner


class Exportable:
    """A learner that may come from a run: ``preprocessing`` makes inputs of raw samples, ``origin`` names the run."""

    preprocessing: Preprocessing | None = None
    origin: dict[str, Any] | None = None  # the experiment as plain data, of which :func:`sncl.load` makes the learner

    def export(
        self, path: str | Path, example: Samples | None = None, class_names: Sequence[str] | None = None
    ) -> None:
        """Write what predicts as one file, ``.onnx`` or ``.pt2`` (torch.export), that needs no sncl.

        The model takes samples as :meth:`learn` does (of a learner from :func:`sncl.load`, before they are
        standardised) and returns logits. Closed neurons are removed. Before anything is written it is compared with
        the learner on ``example`` or, without one, on remembered samples. ``class_names``, in the order of the
        outputs, go into the file's metadata.
        """
        from sncl.training.exporting.write import export_learner

        export_learner(cast("Learner", self), Path(path), example, class_names)
