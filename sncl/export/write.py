"""Write the model of a finished run to a file, once it is known to predict the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sncl.export.account import account
from sncl.export.formats import Format
from sncl.export.measures import compare_predictions, timed_threads
from sncl.export.models import make_models
from sncl.runs.loading import EXAMPLE_SIZE, Trained
from sncl.training.checkpoint import write_atomically, write_json
from sncl.training.engine import on_threads


def export(run: Trained, form: Format, file: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the model of a run to ``file`` and an account of it beside it, both only if it predicts the same."""
    say("removing closed neurons")
    models = make_models(run)
    images = torch.zeros(EXAMPLE_SIZE, *run.stream.shape, dtype=torch.uint8)  # kept in some formats
    with on_threads(timed_threads()):
        say(f"making the {form.title} file")
        exported = form.file(models.small, images)
        say("comparing predictions on the test data")
        with torch.no_grad():
            compared = compare_predictions(run.stream, run.learner.logits, exported.predict)
        say("measuring")
        dense = exported if models.dense is models.small else form.file(models.dense, images)
        found = account(run, models, form, exported, dense, compared)
    write_atomically(file, exported.content)
    write_json(account_file(file), found)
    return found


def account_file(file: Path) -> Path:
    return file.with_name(file.name + ".json")
