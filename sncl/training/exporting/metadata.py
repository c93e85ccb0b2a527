"""What a file says of its model: class names, how samples become its inputs, and what it comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sncl
from sncl.streams.preprocessing import Preprocessing
from sncl.training.exporting.formats import Metadata

MODEL_FORMAT = "1"  # of the metadata; raised when their meaning changes


def metadata_of(
    class_names: Sequence[str], preprocessing: Preprocessing | None = None, facts: dict[str, Any] | None = None
) -> Metadata:
    """Texts by name; ``class_names`` (in the order of the logits) and ``preprocessing`` are JSON.

    What ``preprocessing`` calls scale and transform is inside the model; an encoder of columns is not.
    """
    found = {"model_format": MODEL_FORMAT, "sncl_version": sncl.__version__, "class_names": _json(list(class_names))}
    if preprocessing is not None:
        found["preprocessing"] = _json(preprocessing.to_json())
    return found | {name: str(value) for name, value in (facts or {}).items()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
