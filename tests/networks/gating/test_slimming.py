"""The example of an own policy of gates: network slimming, on the command line and on a network."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sncl.methods.sncl_parts import GATINGS
from sncl.methods.table import METHODS
from sncl.networks.gating.attach import open_neurons
from sncl.networks.mlp import MLP

EXAMPLE = Path(__file__).parents[3] / "examples" / "slimming.py"


@pytest.fixture
def slimming(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module, which leaves nothing behind in the tables of methods."""
    monkeypatch.setitem(GATINGS, "slim", None)
    monkeypatch.setitem(METHODS["sncl"].choices["gates"], "slim", {})
    spec = importlib.util.spec_from_file_location("slimming", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_closes_the_lightest_neurons_once_and_keeps_them_closed(slimming: ModuleType) -> None:
    torch.manual_seed(0)
    net = MLP(6, 2, width=10)
    policy = slimming.Slimming(sparsity=0.3, fill=0.2, price=1e-5)
    policy.attach(net, torch.randn(2, 6), torch.Generator())
    policy.after_update(199)
    assert all(each.all() for each in open_neurons(net).values())
    lightest = torch.cat([net.layer1[0].weight.norm(dim=1), net.layer2[0].weight.norm(dim=1)]).argsort()[:6]
    policy.after_update(1)
    closed = (~torch.cat(list(open_neurons(net).values()))).nonzero().flatten()
    assert closed.tolist() == sorted(lightest.tolist())
    with torch.no_grad():
        for gate in policy.gates:
            gate.mu.copy_(torch.rand(10))
    policy.after_update(200)
    assert closed.tolist() == (~torch.cat(list(open_neurons(net).values()))).nonzero().flatten().tolist()


def test_it_is_a_policy_of_the_command_line(tmp_path: Path) -> None:
    arguments = "train --stream seq-digits --method sncl --epochs 1 --set gates=slim --set fill=0.5 --json --out"
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments.split(), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["active_fraction"] == pytest.approx(0.7)
    assert result["open_by_task"] == pytest.approx([1.0, 0.7, 0.7, 0.7, 0.7])
