"""A finished run as one file that predicts without sncl, checked and measured.

The model in the file takes images as they lie in the data set, uint8 [rows, channels, height, width] with any number of
rows, and returns logits [rows, classes]: the normalisation of the stream is inside, closed neurons are not. Before
anything is written, the file's content is run on the test data of the run and must predict what the run's network does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sncl.errors import SnclError
from sncl.export.formats import FORMATS, Format, check_format
from sncl.export.measures import account, compare
from sncl.export.models import EXAMPLE_ROWS, make_models
from sncl.runs.loading import Trained
from sncl.training.checkpoint import write_atomically, write_json

Say = Callable[[str], None]


def choose(asked: Sequence[str], file: Path | None) -> Format:
    """The format that is asked for by name or by the end of a file's name; ONNX where neither says anything."""
    if len(asked) > 1:
        raise SnclError("give either --onnx or --torch, not both")
    suffixes = {form.suffix: name for name, form in FORMATS.items()}
    if file is not None and (file.suffix not in suffixes or asked not in ([], [suffixes[file.suffix]])):
        ends = " or ".join(FORMATS[name].suffix for name in asked or FORMATS)
        raise SnclError(f"the name of the file ends in {ends}, not {file.name}")
    return check_format(asked[0] if asked else "onnx" if file is None else suffixes[file.suffix])


def export(run: Trained, form: Format, file: Path, say: Say) -> dict[str, Any]:
    """Write the model of a run to ``file`` and an account of it beside it, both only if it predicts the same."""
    say("removing closed neurons")
    models = make_models(run)
    images = torch.zeros(EXAMPLE_ROWS, *run.stream.shape, dtype=torch.uint8)  # kept in some kinds of file
    say(f"making the {form.title} file")
    content = form.make(models.small, images)
    exported = form.load(content)
    say("comparing predictions on the test data")
    with torch.no_grad():
        checked = compare(run, exported)
    say("measuring")
    found = account(run, models, form, content, exported, checked)
    write_atomically(file, content)
    write_json(account_file(file), found)
    return found


def account_file(file: Path) -> Path:
    return file.with_name(file.name + ".json")
