"""Calibration by hand, and samples of the gates' posterior in an evaluation that is otherwise unchanged."""

import math

import pytest
import torch
from torch import nn

from sncl.analysis.calibration import assess, calibration, calibration_error, posterior_average, reliability
from sncl.networks.gating.attach import attach_gates, sampling, variance_gates
from sncl.networks.gating.gate import VarianceGate
from sncl.networks.taps import evaluating
from sncl.runs.loading import Trained
from sncl.tensors.random import Randomness


def test_calibration_error_by_hand() -> None:
    confidence = torch.tensor([0.3, 0.5, 0.51, 0.9, 1.0], dtype=torch.float64)
    right = torch.tensor([True, False, True, True, False])
    low, high = reliability(confidence, right, bins=2)
    assert low == {"low": 0.0, "high": 0.5, "count": 2, "confidence": pytest.approx(0.4), "accuracy": 0.5}
    assert (high["count"], high["confidence"]) == (3, pytest.approx(2.41 / 3))
    assert high["accuracy"] == pytest.approx(2 / 3)
    assert calibration_error([low, high]) == pytest.approx((2 * 0.1 + 3 * (2.41 / 3 - 2 / 3)) / 5)
    (empty, *_) = reliability(confidence, right, bins=10)
    assert empty == {"low": 0.0, "high": 0.1, "count": 0, "confidence": None, "accuracy": None}


def test_measures_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.7, 0.1], [1.0, 0.0, 0.0], [0.1, 0.2, 0.7]])
    found = assess(probabilities, torch.tensor([0, 0, 0, 2]), bins=1)
    assert found["accuracy"] == 75
    chances = (0.5, 0.2, 1.0, 0.7)
    expected = -sum(math.log(chance) for chance in chances) / 4
    assert found["negative_log_likelihood"] == pytest.approx(expected, rel=1e-6)
    assert found["expected_calibration_error"] == pytest.approx(0.75 - 2.9 / 4, rel=1e-5)
    entropies = [-sum(p * math.log(p) for p in row if p) for row in probabilities.tolist()]
    assert found["entropy_right"] == pytest.approx((entropies[0] + entropies[2] + entropies[3]) / 3, rel=1e-6)
    assert found["entropy_wrong"] == pytest.approx(entropies[1], rel=1e-6)
    certain = assess(torch.eye(2), torch.tensor([0, 1]))
    assert (certain["entropy_wrong"], certain["negative_log_likelihood"]) == (None, 0)
    assert math.isfinite(assess(torch.eye(2), torch.tensor([1, 0]))["negative_log_likelihood"])


def test_samples_have_the_posteriors_moments_and_closed_neurons_stay_silent() -> None:
    gate = VarianceGate(3).eval()
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([2.0, -1.0, 0.5]))
        gate.log_variance.copy_(torch.log(torch.tensor([0.25, 0.04, 9.0])))
    assert gate.is_open().tolist() == [True, True, False]
    h = torch.ones(4000, 3)
    torch.manual_seed(0)
    with sampling(nn.Sequential(gate)), torch.no_grad():
        drawn = gate(h)
    assert torch.allclose(drawn.mean(0), torch.tensor([2.0, -1.0, 0.0]), atol=0.03)
    assert torch.allclose(drawn.std(0), torch.tensor([0.5, 0.2, 0.0]), atol=0.02)
    assert torch.equal(gate(h)[0], torch.tensor([2.0, -1.0, 0.0]))  # back to the mean


def test_only_gates_are_random_while_they_are_sampled() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.9), nn.Linear(6, 2))
    x = torch.randn(8, 4)
    net(x)
    attach_gates(net, x[:2])
    statistics = {name: value.clone() for name, value in net.named_buffers()}
    with torch.no_grad():
        for _, gate in variance_gates(net):
            gate.log_variance.fill_(-60.0)  # no noise to speak of
        with evaluating(net):
            still = net(x)
            with sampling(net):
                assert torch.allclose(net(x), still, atol=1e-6)
                for _, gate in variance_gates(net):
                    gate.log_variance.fill_(-2.0)
                assert not torch.allclose(net(x), net(x), atol=1e-3)
            assert torch.equal(net(x), still)
    assert all(torch.equal(value, statistics[name]) for name, value in net.named_buffers())
    with pytest.raises(KeyError), sampling(net):
        raise KeyError
    assert not any(gate.sampling for _, gate in variance_gates(net))


def test_the_average_is_over_samples_and_follows_from_the_seed(random_gates: Trained) -> None:
    learner, (x, _) = random_gates.learner, random_gates.stream.test(0)
    with torch.no_grad():
        for _, gate in variance_gates(learner.net):
            gate.log_variance.fill_(-2.5)

    def drawn(samples: int, seed: int = 0) -> torch.Tensor:
        return posterior_average(
            learner, x[:10], samples, Randomness(seed, host=(), device=("posterior",), on=learner.device)
        )

    before = torch.get_rng_state()
    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(3, seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    numbers = Randomness(0, host=(), device=("posterior",), on=learner.device)
    single = [posterior_average(learner, x[:10], 1, numbers) for _ in range(3)]
    assert torch.allclose(drawn(3), sum(single) / 3)
    assert torch.allclose(drawn(3).sum(1), torch.ones(10, dtype=torch.float64))
    assert not torch.allclose(drawn(3), learner.logits(x[:10]).double().softmax(1), atol=1e-4)


def test_of_a_run(random_gates: Trained, gated: Trained, plain: Trained) -> None:
    found, again = (calibration(random_gates, samples=2, rows=0) for _ in range(2))
    assert found == again
    tests = [random_gates.stream.test(task) for task in range(3)]
    right = sum(int((random_gates.learner.predict(x) == y).sum()) for x, y in tests)
    total = sum(len(y) for _, y in tests)
    assert found["measures"]["mean"]["accuracy"] == 100 * right / total
    assert (found["test_rows"], found["samples"]) == (total, 2)
    assert sum(each["count"] for each in found["measures"]["sampled"]["reliability"]) == total
    for nothing_random in (gated, plain):
        without = calibration(nothing_random, rows=30)
        assert (list(without["measures"]), without["samples"]) == (["mean"], 0)
