"""One trained network under many thresholds, as ``sncl analyze sparsity`` leaves it in the folder of the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sncl.errors import SnclError
from sncl.runs.experiment import decision
from sncl.runs.result import NUMBER, expect, is_plain
from sncl.training.checkpoint import check_seal, read_json, sealed, write_json

SWEEP = "sparsity.json"
MEASURED_AGAIN = "analyse the run again"
KEPT = ("stream", "method", "memory", "seed", "experiment", "measures", "own_threshold", "parameters", "test_rows")
ACCURACY = "accuracy/"  # in front of the name of a read-out


class SweepPoint(NamedTuple):
    """What one threshold leaves: open neurons and parameters, and accuracy by read-out, all in percent."""

    threshold: float
    open: float
    parameters_left: float
    accuracy: dict[str, float]


@dataclass(frozen=True)
class StoredSweep:
    """What an analysis found on so many test samples; ``unmasked`` is the accuracy with all neurons open."""

    test_rows: int
    unmasked: dict[str, float]
    points: tuple[SweepPoint, ...]


def keep_sweep(folder: Path, found: dict[str, Any]) -> None:
    """Leave what ``sncl analyze sparsity`` found of a run in its folder."""
    write_json(folder / SWEEP, sealed({key: found[key] for key in KEPT}))


def read_sweep(folder: Path, experiment: dict[str, Any]) -> StoredSweep | None:
    """What was kept of the run that ``experiment`` describes; None where nothing was."""
    path = folder / SWEEP
    if not path.exists():
        return None
    facts = check_seal(path, read_json(path), MEASURED_AGAIN)
    try:
        kept = expect(facts, {"experiment": dict, "seed": int, "measures": dict, "test_rows": int})
        measures = expect(kept["measures"], {"unmasked": dict, "thresholds": list})
        found = StoredSweep(
            kept["test_rows"], accuracies(measures["unmasked"]), tuple(map(point, measures["thresholds"]))
        )
    except (ValueError, AttributeError) as error:
        raise SnclError(f"{path} is damaged: {error}; {MEASURED_AGAIN}") from error
    if (decision(kept["experiment"]), kept["seed"]) != (decision(experiment), experiment["seed"]):
        raise SnclError(f"{path} is about another run; {MEASURED_AGAIN}")
    return found


def point(facts: Any) -> SweepPoint:
    return SweepPoint(
        **expect(facts, dict.fromkeys(("threshold", "open", "parameters_left"), NUMBER)), accuracy=accuracies(facts)
    )


def accuracies(facts: dict[str, Any]) -> dict[str, float]:
    """The numbers by read-out; one at least."""
    found = {key.removeprefix(ACCURACY): value for key, value in facts.items() if key.startswith(ACCURACY)}
    if not found or not all(isinstance(value, int | float) and is_plain(value) for value in found.values()):
        raise ValueError("it holds no accuracies")
    return found
