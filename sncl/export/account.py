"""The account of an exported run: what was removed, what is left and what it costs, as plain data and as a table."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor

import sncl
from sncl.export.formats import Format, Predict
from sncl.export.measures import TIMED_BATCHES, PredictionCheck, count_parameters, latencies, measure_model
from sncl.export.models import Models
from sncl.networks.pruning.prune import Pruned
from sncl.runs.loading import Trained
from sncl.runs.summary import READOUT_TITLES
from sncl.streams.stream import Stream


def account(
    run: Trained, models: Models, form: Format, content: bytes, exported: Predict, compared: PredictionCheck
) -> dict[str, Any]:
    """Everything measured, as plain data."""
    images = _timed_images(run.stream)
    return {
        "run": str(run.folder),
        "stream": run.experiment.stream,
        "method": run.experiment.method,
        "seed": run.experiment.seed,
        "format": form.title,
        "input": {"name": "images", "type": "uint8", "shape": ["rows", *run.stream.shape]},
        "output": {"name": "logits", "type": "float32", "shape": ["rows", run.stream.classes]},
        "layers": {name: layer._asdict() for name, layer in models.pruned.layers.items()},
        "summary": summary(models.pruned),
        "trained": measure_model(models.trained, images) | {"accuracy": compared.before},
        "pruned": measure_model(models.small, images),
        "exported": {
            "parameters": count_parameters(models.small),
            "bytes": len(content),
            "milliseconds": latencies(exported, images),
            "accuracy": compared.after,
        },
        "scored_on": run.result.scored_on,
        "test_rows": compared.samples,
        "largest_logit_difference": compared.difference,
        "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "versions": {"sncl": sncl.__version__, "torch": torch.__version__},
    }


def _timed_images(stream: Stream) -> Tensor:
    """As many test images as the largest timed batch has, repeated where there are fewer."""
    images, most = stream.test(0)[0], max(TIMED_BATCHES)
    return images.repeat(-(-most // len(images)), 1, 1, 1)[:most]


def summary(found: Pruned) -> str:
    """What became of the neurons, in one sentence."""
    layers = list(found.layers.values())
    if not layers:
        return "the network has no gates, so nothing was removed"
    neurons, opened, left = (sum(layer[place] for layer in layers) for place in range(3))
    if found.note is not None:
        return f"{opened} of {neurons} gated neurons are open; {found.note}"
    if opened == neurons:
        return f"all {neurons} gated neurons are open, so no neuron was removed; the gates themselves are gone"
    if left == neurons:
        return (
            f"{opened} of {neurons} gated neurons are open, but none of the closed ones could be removed: each shares "
            "its channel with an open one, or is the last of its layer"
        )
    return f"{opened} of {neurons} gated neurons are open; {neurons - left} were removed, {left} are left"


def account_table(found: dict[str, Any], file: str) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table of an account."""
    columns = [found[name] for name in ("trained", "pruned", "exported")]

    def line(title: str, form: str, key: str, within: str | None = None) -> list[str]:
        values = [column.get(key) if within is None else column.get(key, {}).get(within) for column in columns]
        return [title, *("–" if value is None else format(value, form) for value in values)]

    return ["", "trained", "pruned", file], [
        line("parameters", ",", "parameters"),
        line("bytes", ",", "bytes"),
        line("floating-point operations, 1 image", ",", "flops"),
        *(line(f"ms, {size} image{'s' * (size > 1)}", ".3f", "milliseconds", str(size)) for size in TIMED_BATCHES),
        *(line(f"{READOUT_TITLES[name]}, %", ".2f", "accuracy", name) for name in found["trained"]["accuracy"]),
    ]
