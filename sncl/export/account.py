"""The account of an exported run: what was removed, what is left and what it costs, as plain data and as a table."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sncl
from sncl.export.measures import TIMED_BATCHES, PredictionCheck, count_bytes, count_multiply_adds, latencies
from sncl.networks.pruning.prune import Pruned
from sncl.networks.pruning.scales import count_parameters
from sncl.runs.loading import Trained
from sncl.runs.summary import READOUT_TITLES
from sncl.training.exporting.formats import Format, ModelFile
from sncl.training.exporting.models import Models, input_name
from sncl.training.inputs import short
from sncl.training.parallel import cores


def account(
    run: Trained,
    models: Models,
    form: Format,
    exported: ModelFile,
    dense: ModelFile,
    compared: PredictionCheck,
    samples: Tensor,
) -> dict[str, Any]:
    """Everything measured, as plain data; ``dense`` is the file of the dense network, ``samples`` are what it takes."""
    machine, preprocessing = machine_facts(), run.stream.preprocessing
    measured = costs(models, exported, dense, timed_samples(samples))
    return {
        "run": str(run.folder),
        "stream": run.experiment.stream,
        "method": run.experiment.method,
        "seed": run.experiment.seed,
        "format": form.title,
        "input": {"name": input_name(samples), "type": short(samples.dtype), "shape": ["rows", *samples.shape[1:]]},
        "output": {"name": "logits", "type": "float32", "shape": ["rows", run.stream.classes]},
        "class_names": None if preprocessing is None else list(preprocessing.class_names),
        "layers": {name: layer._asdict() for name, layer in models.pruned.layers.items()},
        "summary": summary(models.pruned),
        "trained": measured["trained"] | {"accuracy": compared.before},
        "pruned": measured["pruned"],
        "dense": measured["dense"],
        "exported": measured["exported"] | {"accuracy": compared.after},
        "left_percent": left_percent(measured["exported"], measured["dense"]),
        "scored_on": run.result.scored_on,
        "test_rows": compared.samples,
        "largest_logit_difference": compared.difference,
        "machine": machine,
        "versions": {"sncl": sncl.__version__, "torch": torch.__version__},
    }


def machine_facts() -> dict[str, Any]:
    """What times are measured on, and how busy it is: its load of the last minute, None where that is not known."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def is_busy(machine: dict[str, Any]) -> bool:
    """Whether others used the machine so much that times are too long, those on several threads most of all."""
    return machine["load"] is not None and machine["load"] > machine["cores"]


def costs(models: Models, exported: ModelFile, dense: ModelFile, samples: Tensor) -> dict[str, dict[str, Any]]:
    """What each model costs: parameters, bytes, multiply-adds for one sample, and time."""
    networks = {"trained": models.trained, "pruned": models.small, "dense": models.dense, "exported": models.small}
    files = {"dense": dense, "exported": exported}
    running = networks | {name: file.predict for name, file in files.items()}
    milliseconds = latencies(running, samples)
    return {
        name: {
            "parameters": count_parameters(network),
            "bytes": len(files[name].content) if name in files else count_bytes(network),
            "multiply_adds": count_multiply_adds(network, samples[:1]),
            "milliseconds": milliseconds[name],
        }
        for name, network in networks.items()
    }


def left_percent(exported: dict[str, Any], dense: dict[str, Any]) -> dict[str, Any]:
    """What is left of each cost of the dense network, in percent."""
    return {
        key: left_percent(value, dense[key]) if isinstance(value, dict) else round(100 * value / dense[key], 2)
        for key, value in exported.items()
    }


def timed_samples(samples: Tensor) -> Tensor:
    """As many samples as the largest timed batch has, repeated where there are fewer."""
    most = max(TIMED_BATCHES)
    return samples.repeat(-(-most // len(samples)), *[1] * (samples.dim() - 1))[:most]


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
    columns = [found[name] for name in ("trained", "pruned", "dense", "exported", "left_percent")]

    def line(title: str, form: str, key: str, within: str | None = None) -> list[str]:
        values = [column.get(key) if within is None else column.get(key, {}).get(within) for column in columns]
        forms = [form] * 4 + [".1f"]
        return [
            title,
            *("–" if value is None else format(value, own) for value, own in zip(values, forms, strict=True)),
        ]

    return ["", "trained", "pruned", f"dense {Path(file).suffix}", file, "left, %"], [
        line("parameters", ",", "parameters"),
        line("bytes", ",", "bytes"),
        line("multiply-adds, 1 row", ",", "multiply_adds"),
        *(line(f"ms, {size} row{'s' * (size > 1)}", ".3f", "milliseconds", str(size)) for size in TIMED_BATCHES),
        *(line(f"{READOUT_TITLES[name]}, %", ".2f", "accuracy", name) for name in found["trained"]["accuracy"]),
    ]
