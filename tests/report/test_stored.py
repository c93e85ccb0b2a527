"""What the report reads from a checkpoint."""

import shutil
from pathlib import Path

import pytest
import torch

from sncl.report.collect import read_runs
from sncl.report.stored import read_stored
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.run import CHECKPOINT


@pytest.mark.parametrize("ema", ["0", "0.9"])
def test_gates_are_those_of_the_network_that_predicts(ema: str, tmp_path: Path) -> None:
    """By definition lambda is the variance over the squared mean."""
    settings = {"gates": "kl", "ema": ema, "width": "12"}
    perform(plan("seq-digits", "sncl", memory=30, tasks=1, epochs=2, device="cpu", settings=settings), tmp_path)
    tensors, _ = read_checkpoint(tmp_path / CHECKPOINT)
    part = "network" if ema == "0" else "ema"

    def of(layer: str, name: str) -> torch.Tensor:
        return tensors[f"{part}/{layer}.gate.{name}"].double()

    found = read_stored(*read_runs([tmp_path], print), print).log_lambda
    assert len(found) == 2
    for layer, values in found.items():
        ratio = of(layer, "log_variance").exp() / of(layer, "mu") ** 2
        assert values == pytest.approx(ratio.log().tolist(), abs=2e-3)


@pytest.mark.parametrize(
    "tensors",
    [
        {"memory/rows/loss": torch.zeros(4, 3), "memory/rows/x": torch.zeros(4, 1, 2, 0, dtype=torch.uint8)},
        {"memory/rows/x": torch.zeros(4, 1, 2, 2, dtype=torch.uint8), "memory/rows/y": torch.tensor(3)},
        {"network/a.gate.log_variance": torch.zeros(3), "network/a.gate.mu": torch.zeros(2)},
        {"network/a.gate.log_variance": torch.zeros(2, 2), "network/a.gate.mu": torch.zeros(2)},
    ],
)
def test_tensors_of_the_wrong_shape_are_no_traceback(runs: Path, tmp_path: Path, tensors: Fields) -> None:
    shutil.copytree(runs / "sncl-0", tmp_path / "run")
    write_checkpoint(tmp_path / "run" / CHECKPOINT, tensors, {})
    notes: list[str] = []
    stored = read_stored(*read_runs([tmp_path / "run"], print), notes.append)
    assert stored.sheet is None
    assert stored.losses or notes == ["the checkpoint of run is damaged, so its memory and gates are not shown"]
