"""What the report reads from a checkpoint."""

from pathlib import Path

import pytest
import torch

from sncl.report.collect import read_run
from sncl.report.stored import read_stored
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_checkpoint
from sncl.training.run import CHECKPOINT


@pytest.mark.parametrize("gates", ["kl", "natural", "target"])
@pytest.mark.parametrize("ema", ["0", "0.9"])
def test_gates_are_those_of_the_network_that_predicts(gates: str, ema: str, tmp_path: Path) -> None:
    """By definition lambda is the variance over the squared mean, whatever a policy of the gates learns."""
    settings = {"gates": gates, "ema": ema, "width": "12"}
    perform(plan("seq-digits", "sncl", memory=30, tasks=1, epochs=2, device="cpu", settings=settings), tmp_path)
    tensors, _ = read_checkpoint(tmp_path / CHECKPOINT)
    part = "network" if ema == "0" else "ema"

    def of(layer: str, name: str) -> torch.Tensor:
        return tensors[f"{part}/{layer}.gate.{name}"].double()

    found = read_stored(read_run(tmp_path), lambda note: None).log_lambda
    assert len(found) == 2
    for layer, values in found.items():
        mean = of(layer, "mu")
        ratio = of(layer, "log_variance").exp() / mean**2 if gates == "kl" else of(layer, "log_lambda").exp()
        assert values == pytest.approx(ratio.log().tolist(), abs=2e-3)
