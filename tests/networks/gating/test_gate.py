"""The gates of one layer: their posterior, their noise, and what they do in training and in evaluation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sncl.networks.gating.attach import attach_gates, gates, unmasked
from sncl.networks.gating.gate import Gate, RatioGate, SilentGate, VarianceGate
from sncl.tensors.random import generator

KINDS = [VarianceGate, RatioGate]


def spread(gate: Gate) -> torch.Tensor:
    """The parameter beside the mean."""
    return gate.get_parameter("log_variance" if isinstance(gate, VarianceGate) else "log_lambda")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_posteriors_mean_and_variance(kind: type[Gate]) -> None:
    gate = kind(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([2.0, -0.5]))
        spread(gate).copy_(torch.tensor([math.log(0.09), math.log(0.25)]))
    drawn = gate(torch.ones(200_000, 2))
    variance = torch.tensor([0.09, 0.25]) if kind is VarianceGate else torch.tensor([0.09 * 4, 0.25 * 0.25])
    assert torch.allclose(drawn.mean(0), gate.mu, atol=0.01)
    assert torch.allclose(drawn.var(0), variance, rtol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_draws_its_own_gate(kind: type[Gate]) -> None:
    assert kind(4, generator=generator(0))(torch.ones(3, 4)).unique(dim=0).shape[0] == 3


def test_a_closed_neuron_is_silent_in_evaluation_only_and_can_come_back() -> None:
    gate = VarianceGate(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 0.001]))
    assert gate.is_open().tolist() == [True, False]
    assert gate.eval()(torch.ones(1, 2)).tolist() == [[1.0, 0.0]]
    drawn = gate.train()(torch.ones(5, 2))
    assert (drawn[:, 1] != 0).all()
    drawn[:, 1].sum().backward()
    assert gate.mu.grad is not None and gate.mu.grad[1] != 0  # data still reach it


def test_without_noise_closed_neurons_are_silent_in_training_and_heard_by_their_gradient() -> None:
    gate = SilentGate(3, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
        gate.log_lambda.copy_(torch.tensor([-5.0, 0.5, -5.0]))
    out = gate.train()(torch.ones(4, 3))
    assert torch.equal(out, torch.tensor([[1.0, 0.0, 3.0]]).expand(4, 3))
    assert torch.equal(out, gate.eval()(torch.ones(4, 3)))
    (out * torch.tensor([0.1, 0.2, 0.3])).sum().backward()
    assert gate.log_lambda.grad is not None and gate.log_lambda.grad.tolist() == pytest.approx([0.4, 0.8, 1.2])
    assert gate.mu.grad is not None and gate.mu.grad.tolist() == pytest.approx([0.4, 0.0, 1.2])


def test_closed_neurons_respond_at_their_mean_where_the_mask_is_off() -> None:
    net = attach_gates(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 2)).eval()
    gate = next(gate for _, gate in gates(net))
    x = torch.randn(4, 2)
    open_says = net(x)
    with torch.no_grad():
        spread(gate)[1] = 9.0
    masked = net(x)
    with unmasked(net):
        assert torch.equal(net(x), open_says)
    assert torch.equal(net(x), masked) and not torch.equal(masked, open_says)


@pytest.mark.parametrize(("shape", "axis"), [((5, 3), -1), ((5, 3, 4, 4), 1), ((5, 7, 3), -1)])
def test_gates_scale_channels_wherever_they_lie(shape: tuple[int, ...], axis: int) -> None:
    gate = VarianceGate(3, axis).eval()
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert gate(torch.ones(shape)).movedim(axis, -1)[0].reshape(-1, 3)[0].tolist() == [1.0, 2.0, 3.0]
