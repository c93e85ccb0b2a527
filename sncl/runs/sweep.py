"""One trained network with more and more neurons closed, as ``sncl analyze sparsity`` leaves it in its run folder."""

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
KEPT = ("stream", "method", "memory", "seed", "experiment", "measures", "parameters", "memory_rows", "test_rows")
ACCURACY = "accuracy/"  # in front of the name of a read-out
OWN = "own"  # the network as the run left it, beside percents of closed neurons


class SweepPoint(NamedTuple):
    """What closed neurons leave: open neurons and parameters, and accuracy by read-out, all in percent."""

    open: float
    parameters_left: float
    accuracy: dict[str, float]


@dataclass(frozen=True)
class StoredSweep:
    """What an analysis found on so many test samples, by the percent of all neurons that are closed, or ``OWN``."""

    test_rows: int
    points: dict[str, SweepPoint]


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
        expect(kept["measures"], {OWN: dict})
        found = StoredSweep(kept["test_rows"], {key: point(each) for key, each in kept["measures"].items()})
    except (ValueError, AttributeError) as error:
        raise SnclError(f"{path} is damaged: {error}; {MEASURED_AGAIN}") from error
    if (decision(kept["experiment"]), kept["seed"]) != (decision(experiment), experiment["seed"]):
        raise SnclError(f"{path} is about another run; {MEASURED_AGAIN}")
    return found


def point(facts: Any) -> SweepPoint:
    return SweepPoint(**expect(facts, dict.fromkeys(("open", "parameters_left"), NUMBER)), accuracy=accuracies(facts))


def accuracies(facts: dict[str, Any]) -> dict[str, float]:
    """The numbers by read-out; one at least."""
    found = {key.removeprefix(ACCURACY): value for key, value in facts.items() if key.startswith(ACCURACY)}
    if not found or not all(isinstance(value, int | float) and is_plain(value) for value in found.values()):
        raise ValueError("it holds no accuracies")
    return found
