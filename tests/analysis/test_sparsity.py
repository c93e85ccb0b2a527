"""One trained network under many thresholds: at its own it is the run's result, and nothing of it stays."""

import json
from pathlib import Path

import pytest
import torch
from command_line import Sncl

from sncl.analysis.sparsity import open_part, sparsity, sweep, under_threshold
from sncl.errors import SnclError
from sncl.networks.gating.attach import gates
from sncl.networks.gating.mask import Mask
from sncl.runs.loading import Trained


def spread_out(run: Trained) -> torch.Tensor:
    """Give the gates of the network that predicts log lambdas from -9 to 1, and return them."""
    values = []
    with torch.no_grad():
        for _, gate in gates(run.learner.net):
            wanted = torch.linspace(-9.0, 1.0, len(gate.mu))
            gate.log_variance.copy_(wanted + gate.mu.square().log())
            values.append(wanted)
    return torch.cat(values)


def test_its_own_threshold_gives_the_runs_result(gated: Trained) -> None:
    (point,) = sweep(gated, [gated.learner.mask.threshold])
    assert point.accuracy == gated.result.accuracy
    assert point.open_fraction == pytest.approx(gated.result.active_fraction)


def test_open_neurons_are_those_below_the_threshold(gated: Trained) -> None:
    with gated.learner.as_trained():
        values = spread_out(gated)
        points = sweep(gated, [-8.5, -3.05, 0.0], rows=30)
    for point in points:
        assert point.open_fraction == pytest.approx(float((values < point.threshold).double().mean()), abs=1e-6)
    assert points[0].accuracy != points[2].accuracy


def test_the_mask_comes_back_after_an_error_too(gated: Trained) -> None:
    own = gated.learner.mask
    with gated.learner.as_trained():
        spread_out(gated)
        before = open_part(gated.learner)
        with pytest.raises(KeyError), under_threshold(gated.learner, -6.0):
            assert open_part(gated.learner) < before
            raise KeyError
        assert (gated.learner.mask, open_part(gated.learner)) == (own, before)
    gated.learner.mask = Mask(threshold=-2.0)
    sweep(gated, [-5.0], rows=30)
    assert gated.learner.mask == Mask(threshold=-2.0)


def test_of_a_run(gated: Trained, plain: Trained) -> None:
    told: list[tuple[int, int]] = []
    found = sparsity(gated, thresholds=(-9.0, 0.0), rows=30, progress=lambda *numbers: told.append(numbers))
    assert found == sparsity(gated, thresholds=(-9.0, 0.0), rows=30)
    assert told == [(1, 2), (2, 2)]
    first, last = found["measures"]["thresholds"]
    assert (first["threshold"], last["threshold"]) == (-9.0, 0.0) and first["open"] <= last["open"] <= 100
    assert found["measures"]["unmasked"].keys() == {"accuracy/class_il", "accuracy/task_il"}
    assert found["test_rows"] == 30
    with pytest.raises(SnclError, match="er-0 has no gates"):
        sparsity(plain)
    with pytest.raises(SnclError, match="`threshold` is a log lambda"):
        sparsity(gated, thresholds=(1.0,), rows=30)


def test_the_command(sncl: Sncl, runs: Path, tmp_path: Path) -> None:
    command = ["analyze", "sparsity", runs / "sncl-0", "--rows", "60", "--thresholds", "0,-4", "--device", "cpu"]
    done = sncl(*command, "--picture", "found.png", "--out", "found.json")
    assert (done.code, done.err) == (0, "picture: found.png\n")
    header, *lines = done.out.splitlines()
    assert header.split("  ")[0] == "method" and "open neurons, %" in header and "Class-IL, %" in header
    assert [line.split("  ")[0] for line in lines] == ["SNCL"] * 3
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    found = sncl(*command, "--json").json()
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert [point["threshold"]["mean"] for point in found["groups"][0]["summary"]["thresholds"]] == [-4, 0]
    for value, words in {"a": "numbers with commas", "2": "from -10 to 0"}.items():
        failed = sncl("analyze", "sparsity", runs / "sncl-0", "--thresholds", value)
        assert failed.code == 2 and words in failed.err and failed.err.count("\n") == 1
