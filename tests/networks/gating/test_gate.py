"""The gates of one layer: neurons in reserve, and the paper's posterior with its noise and its mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sncl.networks.gating.attach import attach_gates, unmasked, variance_gates
from sncl.networks.gating.gate import Gate, ReserveGate, VarianceGate
from sncl.tensors.random import generator


def test_samples_have_the_posteriors_mean_and_variance() -> None:
    gate = VarianceGate(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([2.0, -0.5]))
        gate.log_variance.copy_(torch.tensor([math.log(0.09), math.log(0.25)]))
    drawn = gate(torch.ones(200_000, 2))
    assert torch.allclose(drawn.mean(0), gate.mu, atol=0.01)
    assert torch.allclose(drawn.var(0), torch.tensor([0.09, 0.25]), rtol=0.02)


def test_every_sample_draws_its_own_gate() -> None:
    assert VarianceGate(4, generator=generator(0))(torch.ones(3, 4)).unique(dim=0).shape[0] == 3


def test_a_closed_neuron_of_the_paper_is_silent_in_evaluation_only_and_can_come_back() -> None:
    gate = VarianceGate(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 0.001]))
    assert gate.is_open().tolist() == [True, False]
    assert gate.factor().tolist() == [1.0, 0.0]
    assert gate.eval()(torch.ones(1, 2)).tolist() == [[1.0, 0.0]]
    drawn = gate.train()(torch.ones(5, 2))
    assert (drawn[:, 1] != 0).all()
    drawn[:, 1].sum().backward()
    assert gate.mu.grad is not None and gate.mu.grad[1] != 0  # data still reach it


def test_neurons_in_reserve_are_silent_in_training_and_evaluation_and_do_not_learn() -> None:
    layer, gate = nn.Linear(2, 3), ReserveGate(3)
    gate.opened[1] = False
    x = torch.randn(4, 2)
    for mode in (True, False):
        out = gate.train(mode)(layer(x))
        assert torch.equal(out, layer(x) * torch.tensor([1.0, 0.0, 1.0]))
    out.square().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.any(1).tolist() == [True, False, True]
    assert gate.is_open().tolist() == [True, False, True] and gate.factor().tolist() == [1.0, 0.0, 1.0]


def test_closed_neurons_respond_at_their_mean_where_the_mask_is_off() -> None:
    torch.manual_seed(0)
    net = attach_gates(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 2)).eval()
    gate = next(gate for _, gate in variance_gates(net))
    x = torch.randn(4, 2)
    open_says = net(x)
    with torch.no_grad():
        gate.log_variance[1] = 9.0
    masked = net(x)
    with unmasked(net):
        assert torch.equal(net(x), open_says)
    assert torch.equal(net(x), masked) and not torch.equal(masked, open_says)


@pytest.mark.parametrize("kind", [VarianceGate, ReserveGate])
@pytest.mark.parametrize(("shape", "axis"), [((5, 3), -1), ((5, 3, 4, 4), 1), ((5, 7, 3), -1)])
def test_gates_scale_channels_wherever_they_lie(kind: type[Gate], shape: tuple[int, ...], axis: int) -> None:
    gate = kind(3, axis).eval()
    with torch.no_grad():
        if isinstance(gate, VarianceGate):
            gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
        elif isinstance(gate, ReserveGate):
            gate.opened[0] = False
            gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
    expected = [1.0, 2.0, 3.0] if kind is VarianceGate else [0.0, 2.0, 3.0]
    assert gate(torch.ones(shape)).movedim(axis, -1)[0].reshape(-1, 3)[0].tolist() == expected
