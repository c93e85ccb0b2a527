"""The Fisher information against the dense matrix, made row by row."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.analysis import fisher as module
from sncl.analysis.fisher import fisher, leading_eigenvalues, times_fisher, traces
from sncl.networks.gating.attach import attach_gates
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.runs.loading import Trained


def small(gated: bool) -> tuple[Tapped, Tensor, Tensor]:
    """A small network with BatchNorm, double precision, and 30 rows."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    net(x)  # moves the running statistics
    if gated:
        attach_gates(net, x[:2])
        with torch.no_grad():
            net[2].gate.mu.copy_(torch.tensor([0.5, 1.5, -1.0, 2.0, 0.1]))
    return Tapped(net.double()).train(), x.double(), y


def row_by_row(net: Tapped, x: Tensor, y: Tensor) -> Tensor:
    """[rows, parameters]"""
    net.eval()
    made = []
    for row, label in zip(x, y, strict=True):
        net.zero_grad()
        F.cross_entropy(net.body(row[None]), label[None]).backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.body.parameters()]
        made.append(torch.cat([part.flatten() for part in parts]))
    net.zero_grad()
    net.train()
    return torch.stack(made)


def batches(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x[:7], y[:7]), (x[7:], y[7:])]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("numbers", [2**25, 1, 100])
def test_traces_are_those_of_a_loop_over_rows(gated: bool, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", numbers)
    net, x, y = small(gated)
    gradients = row_by_row(net, x, y)
    found = traces(net, batches(x, y))
    assert torch.allclose(found.plain, gradients.square().sum(1))
    flat = torch.cat([p.detach().flatten() for p in net.body.parameters()])
    of_gates = torch.cat(
        [torch.full((p.numel(),), name.endswith(("mu", "log_variance"))) for name, p in net.body.named_parameters()]
    )
    assert int(of_gates.sum()) == 10 * gated
    scaled = (gradients * flat).square()
    assert torch.allclose(found.relative, scaled[:, ~of_gates].sum(1))
    assert torch.allclose(found.of_gates, scaled[:, of_gates].sum(1))
    assert bool(found.of_gates.any()) == gated
    assert net.training


@pytest.mark.parametrize("gated", [False, True])
def test_eigenvalues_are_those_of_the_dense_matrix(gated: bool) -> None:
    net, x, y = small(gated)
    gradients = row_by_row(net, x, y)
    dense = gradients.T @ gradients / len(y)
    vector = torch.randn(dense.shape[0], dtype=torch.float64)
    assert torch.allclose(times_fisher(net, batches(x, y), vector), dense @ vector)
    expected = torch.linalg.eigvalsh(dense).flip(0)[:6].tolist()
    assert leading_eigenvalues(net, batches(x, y), 6) == pytest.approx(expected, rel=1e-6)
    assert expected[0] > 2 * expected[5] > 0
    assert float(traces(net, batches(x, y)).plain.mean()) == pytest.approx(float(dense.trace()))


def test_a_resnet_with_gates() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(6, 1, 8, 8), torch.randint(3, (6,))
    net = Tapped(attach_gates(ResNet18(3, 1, width=2), x[:2]).double()).train()
    x = x.double()
    net(x)  # moves the running statistics
    statistics = {name: value.clone() for name, value in net.named_buffers()}
    gradients = row_by_row(net, x, y)
    parts = [(x[:2], y[:2]), (x[2:], y[2:])]
    assert torch.allclose(traces(net, parts).plain, gradients.square().sum(1))
    vector = torch.randn(gradients.shape[1], dtype=torch.float64)
    assert torch.allclose(times_fisher(net, parts, vector), gradients.T @ (gradients @ vector) / 6)
    assert all(torch.equal(value, statistics[name]) for name, value in net.named_buffers())


def test_no_more_eigenvalues_than_there_are() -> None:
    torch.manual_seed(0)
    net = Tapped(nn.Linear(2, 2).double())
    x, y = torch.randn(9, 2, dtype=torch.float64), torch.randint(2, (9,))
    gradients = row_by_row(net, x, y)
    expected = torch.linalg.eigvalsh(gradients.T @ gradients / 9).flip(0)[:5].tolist()
    assert leading_eigenvalues(net, [(x, y)], 50) == pytest.approx(expected, abs=1e-6)


def test_of_a_run(random_gates: Trained, gated: Trained, plain: Trained) -> None:
    found = fisher(random_gates, rows=60, eigenvalues=3, seed=1)
    again, other, fewer = (
        fisher(random_gates, rows=60, eigenvalues=3, seed=1),
        fisher(random_gates, rows=60, eigenvalues=3, seed=2),
        fisher(plain, rows=0, eigenvalues=0),
    )
    assert found == again
    assert found["measures"]["trace"] != other["measures"]["trace"]
    assert (found["training_rows"], len(found["measures"]["eigenvalues"])) == (60, 3)
    assert 0 < sum(found["measures"]["eigenvalues"]) < found["measures"]["trace"]
    assert found["measures"]["relative_trace_of_gates"] > 0
    assert fewer["training_rows"] == sum(len(phase.rows) for phase in plain.stream.phases)
    assert (fewer["measures"]["eigenvalues"], fewer["measures"]["relative_trace_of_gates"]) == ([], 0)
    assert fisher(gated, rows=60, eigenvalues=0)["measures"]["relative_trace_of_gates"] > 0
    assert found["standard_error"]["trace"] > fewer["standard_error"]["trace"] > 0
