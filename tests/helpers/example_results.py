"""Results of runs that never were, for tests of what is made of results."""

from __future__ import annotations

from typing import Any

from sncl.runs.result import Manifest, Measures, Result


def result(
    method: str = "er",
    seed: int = 0,
    accuracy: dict[str, float] | None = None,
    forgetting: float | None = 10.0,
    **changed: Any,
) -> Result:
    accuracy = accuracy or {"class_il": 80.0, "task_il": 95.0}
    usual: dict[str, Any] = {
        **{"stream": "seq-digits", "method": method, "memory": 100, "seed": seed},
        "measures": {
            readout: Measures(value, [[value]], None, forgetting, None, None) for readout, value in accuracy.items()
        },
        **{"steps": 10, "seconds": 2.0, "memory_bytes_per_sample": 65, "parameters": 100, "active_fraction": None},
        **{"open_by_task": None, "open_by_layer": None, "accuracy_variants": {}, "scored_on": "test"},
        "manifest": Manifest("2020.1", "0", {}, "cpu", 1, "float32", "eager", 1, 1, 0.0, {}),
    }
    return Result(**usual | changed)
