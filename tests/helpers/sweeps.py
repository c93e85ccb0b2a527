"""A small file of `sncl analyze sparsity` in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sncl.runs.experiment import deciding
from sncl.runs.sweep import OWN, keep_sweep

LEFT = {OWN: (80.0, 70.0), "50": (50.0, 40.0), "80": (20.0, 10.0)}  # by closed percent: neurons and parameters


def keep_example(folder: Path, experiment: dict[str, Any], **accuracy: float) -> None:
    """As it is and with more neurons closed; ``accuracy`` by read-out as it is, and 10 less in each step."""
    scores = {f"accuracy/{readout}": value for readout, value in (accuracy or {"class_il": 50.0}).items()}
    measures = {
        closed: {
            "open": opened,
            "parameters_left": left,
            **{key: value - 10 * step for key, value in scores.items()},
        }
        for step, (closed, (opened, left)) in enumerate(LEFT.items())
    }
    facts = {key: experiment[key] for key in ("stream", "method", "memory", "seed")}
    more = {"parameters": 17_610, "memory_rows": 30, "test_rows": 60}
    keep_sweep(folder, facts | more | {"experiment": deciding(experiment), "measures": measures})
