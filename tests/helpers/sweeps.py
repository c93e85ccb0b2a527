"""A small file of `sncl analyze sparsity` in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sncl.runs.experiment import deciding
from sncl.runs.sweep import keep_sweep

LEFT = {-4.0: (20.0, 10.0), 0.0: (80.0, 70.0)}  # by threshold: open neurons and parameters, in percent


def keep_example(folder: Path, experiment: dict[str, Any], **accuracy: float) -> None:
    """Under two thresholds and without a mask; ``accuracy`` by read-out at -4, and 10 more in each step."""
    scores = {f"accuracy/{readout}": value for readout, value in (accuracy or {"class_il": 50.0}).items()}
    points = [
        {
            "threshold": threshold,
            "open": opened,
            "parameters_left": left,
            **{key: value + 10 * step for key, value in scores.items()},
        }
        for step, (threshold, (opened, left)) in enumerate(LEFT.items())
    ]
    facts = {key: experiment[key] for key in ("stream", "method", "memory", "seed")}
    measures = {"unmasked": {key: value + 20 for key, value in scores.items()}, "thresholds": points}
    more = {"own_threshold": 0.0, "parameters": 17_610, "test_rows": 60}
    keep_sweep(folder, facts | more | {"experiment": deciding(experiment), "measures": measures})
