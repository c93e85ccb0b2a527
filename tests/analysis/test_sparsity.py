"""One trained network under many thresholds: at its own it is the run's result, and nothing of it stays."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command_line import Sncl

from sncl.analysis.groups import analysed
from sncl.analysis.sparsity import open_part, sparsity, sweep, under_threshold
from sncl.errors import SnclError
from sncl.networks.gating.attach import gates
from sncl.networks.gating.mask import Mask
from sncl.runs.experiment import read_described
from sncl.runs.loading import Trained
from sncl.runs.sweep import SWEEP, keep_sweep, read_sweep


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


def test_parameters_left_are_those_without_closed_neurons(gated: Trained) -> None:
    """Of the MLP 64-100-100-10, whose gates have log lambdas spread over the same range in both layers."""
    with gated.learner.as_trained():
        values = spread_out(gated)[:100]
        points = sweep(gated, [-9.5, -8.95, -3.05, -3.04, 0.0], rows=30)
    for point in points:
        left = max(1, int((values < point.threshold).sum()))  # a layer keeps a neuron
        assert point.parameters == 65 * left + (left + 1) * left + (left + 1) * 10
    dense = 65 * 100 + 101 * 100 + 101 * 10
    found = sparsity(gated, thresholds=(0.0,), rows=30)
    (own,) = sweep(gated, [0.0], rows=30)
    assert found["parameters"] == dense
    assert found["measures"]["thresholds"][0]["parameters_left"] == pytest.approx(100 * own.parameters / dense)


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
    shutil.copytree(runs / "sncl-0", tmp_path / "run")
    command = ["analyze", "sparsity", "run", "--rows", "60", "--thresholds", "0,-4", "--device", "cpu"]
    done = sncl(*command, "--picture", "found.png", "--out", "found.json")
    assert (done.code, done.err) == (0, "picture: found.png\n")
    header, *lines = done.out.splitlines()
    assert header.split("  ")[0] == "method" and "open neurons, %" in header and "Class-IL, %" in header
    assert "parameters left, %" in header
    assert [line.split("  ")[0] for line in lines] == ["SNCL"] * 3
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    found = sncl(*command, "--json").json()
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert [point["threshold"]["mean"] for point in found["groups"][0]["summary"]["thresholds"]] == [-4, 0]
    stored = read_sweep(tmp_path / "run", read_described(tmp_path / "run"))
    assert stored is not None and stored.test_rows == 60
    for point, measured in zip(stored.points, found["runs"][0]["measures"]["thresholds"], strict=True):
        assert point.threshold == measured["threshold"] and point.parameters_left == measured["parameters_left"]
        assert point.open == measured["open"] and point.accuracy["task_il"] == measured["accuracy/task_il"]
    for value, words in {"a": "numbers with commas", "2": "from -10 to 0"}.items():
        failed = sncl("analyze", "sparsity", runs / "sncl-0", "--thresholds", value)
        assert failed.code == 2 and words in failed.err and failed.err.count("\n") == 1


def test_a_folder_that_takes_no_file_is_noted(sncl: Sncl, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "sncl-0", tmp_path / "run")
    (tmp_path / "run" / SWEEP).mkdir()
    done = sncl("analyze", "sparsity", "run", "--rows", "30", "--thresholds", "0")
    assert done.code == 0 and "SNCL" in done.out
    assert done.err.startswith("note: cannot write run/sparsity.json") and "report will not show it" in done.err


def test_what_is_kept_is_read_again_or_refused(gated: Trained, tmp_path: Path) -> None:
    found = analysed(gated, sparsity(gated, thresholds=(-4.0, 0.0), rows=30))
    ours = gated.experiment.identity()
    assert read_sweep(tmp_path, ours) is None
    keep_sweep(tmp_path, found)
    stored = read_sweep(tmp_path, ours)
    assert stored is not None and [point.threshold for point in stored.points] == [-4.0, 0.0]
    with pytest.raises(SnclError, match=r"sparsity\.json is about another run; analyse the run again"):
        read_sweep(tmp_path, ours | {"seed": 7})
    for spoiled in ({"measures": {}}, {"test_rows": "many"}, {"measures": found["measures"] | {"thresholds": [3]}}):
        keep_sweep(tmp_path, found | spoiled)
        with pytest.raises(SnclError, match=r"sparsity\.json is damaged: .*; analyse the run again"):
            read_sweep(tmp_path, ours)
    keep_sweep(tmp_path, found)
    text = (tmp_path / SWEEP).read_text()
    (tmp_path / SWEEP).write_text(text.replace('"test_rows": 30', '"test_rows": 31'))
    with pytest.raises(SnclError, match="checksum does not fit"):
        read_sweep(tmp_path, ours)
