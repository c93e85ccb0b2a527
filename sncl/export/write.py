"""Write the model of a finished run to a file, once it is known to predict the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sncl.errors import SnclError
from sncl.export.account import account
from sncl.export.measures import compare_predictions, timed_threads
from sncl.runs.loading import Trained
from sncl.training.checkpoint import write_atomically, write_json
from sncl.training.engine import on_threads
from sncl.training.exporting.formats import Format, Metadata
from sncl.training.exporting.metadata import metadata_of
from sncl.training.exporting.models import input_name, make_models, raw_zeros


def export(run: Trained, form: Format, file: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the model of a run to ``file`` and an account of it beside it, both only if it predicts the same."""
    say("removing closed neurons")
    try:
        models = make_models(run.learner, run.experiment.method)
    except SnclError as error:
        raise SnclError(f"{run.folder}: {error}") from error
    raw, example, metadata = run.unstandardised(), raw_zeros(run.learner), run_metadata(run)
    name = input_name(example)
    with on_threads(timed_threads()):
        say(f"making the {form.title} file")
        exported = form.file(models.small, example, name, metadata)
        say("comparing predictions on the test data")
        with torch.no_grad():
            compared = compare_predictions(run.stream, run.learner.logits, raw, exported.predict)
        say("measuring")
        dense = exported if models.dense is models.small else form.file(models.dense, example, name, metadata)
        found = account(run, models, form, exported, dense, compared, raw.test(0)[0])
    write_atomically(file, exported.content)
    write_json(account_file(file), found)
    return found


def run_metadata(run: Trained) -> Metadata:
    """What a file says of the run it comes from."""
    preprocessing, experiment = run.stream.preprocessing, run.experiment
    assert preprocessing is not None
    facts = {"stream": experiment.stream, "method": experiment.method, "seed": experiment.seed}
    return metadata_of(preprocessing.class_names, preprocessing, facts)


def account_file(file: Path) -> Path:
    return file.with_name(file.name + ".json")
