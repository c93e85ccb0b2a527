"""How gates are trained: each policy's step by hand, where it ends, and what it refuses."""

from __future__ import annotations

import math
from typing import TypeVar

import pytest
import torch

from sncl.errors import SnclError
from sncl.networks.gating.gate import Gate, RatioGate, SilentGate, VarianceGate
from sncl.networks.gating.policies import KL, STEP, Gating, Natural, Target
from sncl.tensors.random import generator

Policy = TypeVar("Policy", bound=Gating)


def over(policy: Policy, *gates: Gate) -> Policy:
    """The policy, with these gates to train."""
    policy.gates = gates
    return policy


@pytest.mark.parametrize("log_lambda", [-8.0, -1.0, 0.0, 3.0])
def test_divergence_is_the_exact_kl_to_the_best_prior(log_lambda: float) -> None:
    """Against torch's own KL of two Gaussians, with the prior's variance minimised numerically."""
    gate = VarianceGate(3)
    mu = torch.tensor([0.7, -1.2, 2.0])
    with torch.no_grad():
        gate.mu.copy_(mu)
        gate.log_variance.copy_(log_lambda + 2 * mu.abs().log())
    posterior = torch.distributions.Normal(mu, mu.abs() * math.exp(log_lambda / 2))
    scales = torch.logspace(-3, 3, 20001)[:, None]
    best = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, scales)).min(0).values.sum()
    assert over(KL(1.0), gate).divergence().item() == pytest.approx(best.item(), rel=1e-4)
    assert over(KL(0.1), gate).losses()["sparsity"].item() == pytest.approx(0.1 * best.item(), rel=1e-4)


@pytest.mark.parametrize("policy", [KL(0.01, anneal=3.0), Natural(0.01, anneal=3.0)])
def test_the_price_falls_with_the_samples_seen(policy: KL | Natural) -> None:
    assert policy.price().item() == pytest.approx(0.01)
    policy.after_update(500)
    assert policy.price().item() == pytest.approx(0.01 / (1 + 3.0 * 0.5))


def test_a_natural_step_by_hand() -> None:
    first, second = (RatioGate(2, generator=generator(0), start=start) for start in (-1.0, 0.99))
    first.log_lambda.grad = torch.tensor([0.2, -0.05])
    second.log_lambda.grad = torch.tensor([900.0, -900.0])
    over(Natural(0.01), first, second).after_update(32)
    pull = 0.5 / (1 + math.exp(-1.0))  # 1/2 sigmoid(-log lambda)
    moved = [0.01 * 0.2 / 0.01 - pull, 0.01 * -0.05 / 0.01 - pull]  # a hundredth of the gradient is in the mean so far
    assert first.log_lambda.tolist() == pytest.approx([-1 - STEP * moved[0], -1 - STEP * moved[1]])
    assert second.log_lambda.tolist() == pytest.approx([0.99 - STEP, 1.0])  # a step is clipped, and so is where it ends
    assert first.evidence.tolist() == pytest.approx([0.002, -0.0005])


def test_natural_steps_end_where_noise_and_divergence_balance() -> None:
    """lambda (1 + lambda) = eta / rho, from either side, for a loss of known curvature."""
    torch.manual_seed(0)
    relevance, eta = torch.tensor([4e-3, 4e-2, 4e-1, 4.0]), 0.02
    for start in (-6.0, 1.0):
        gate = RatioGate(4, generator=generator(0), start=start)
        policy = over(Natural(eta), gate)
        with torch.no_grad():
            gate.mu.fill_(2.0)
        found = []
        for number in range(4000):
            gate.zero_grad()
            tau = gate(torch.ones(256, 4))
            (relevance / 4 * (tau - 2).square() / 2).sum(1).mean().backward()  # mu^2 times curvature is the relevance
            policy.after_update(256)
            if number >= 2000:
                found.append(gate.log_lambda.detach().exp())
        balance = torch.sqrt(0.25 + eta / relevance) - 0.5
        reached = torch.stack(found).mean(0)
        torch.testing.assert_close(reached, balance, rtol=0.1, atol=0)
        assert gate.is_open().tolist() == [False, True, True, True]  # open where rho > eta / 2


def test_a_target_step_by_hand() -> None:
    first, second = (SilentGate(2, generator=generator(0), start=start) for start in (-1.0, 0.99))
    with torch.no_grad():
        first.mu.fill_(2.0)
        second.mu.fill_(1.0)
    first.log_lambda.grad = torch.tensor([0.5, 0.1])
    second.log_lambda.grad = torch.tensor([0.4, 40.0])
    policy = over(Target(0.5), first, second)
    policy.after_update(10)
    relevance = [0.001 * 10 * each**2 for each in (1.0, 0.2, 0.4, 40.0)]  # (mu times gradient)^2, a thousandth so far
    assert torch.cat([first.evidence, second.evidence]).tolist() == pytest.approx(relevance)
    standing = [30 * relevance[0], 30 * relevance[1], relevance[2], relevance[3]]  # the first two are open
    eta = standing[1] + standing[0]  # between the two that close and the two that do not
    balance = [math.log(math.sqrt(0.25 + eta / each) - 0.5) for each in standing]
    assert -0.7 < balance[0] < 0 < balance[1] and balance[2] > 1 and balance[3] < 0
    assert first.log_lambda.tolist() == pytest.approx([-1 + STEP, -1 + STEP])
    assert second.log_lambda.tolist() == pytest.approx([1.0, 0.99 - STEP])  # to the limit, or as far as a step
    for _ in range(40):
        policy.after_update(10)
    assert first.log_lambda.tolist() == pytest.approx([balance[0], -1 + 41 * STEP], abs=1e-3)  # to the balance


@pytest.mark.parametrize(("better", "closed"), ((20.0, [True, False]), (40.0, [False, True])))
def test_a_closed_neuron_comes_back_if_it_is_much_more_relevant(better: float, closed: list[bool]) -> None:
    gate = SilentGate(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.fill_(1.0)
        gate.log_lambda.copy_(torch.tensor([0.5, -0.5]))
    gate.log_lambda.grad = torch.tensor([better, 1.0]).sqrt()
    policy = over(Target(0.5), gate)
    for _ in range(200):
        policy.after_update(10)
    assert (~gate.is_open()).tolist() == closed


@pytest.mark.parametrize(("neurons", "sparsity", "closed"), [(11, 0.3, 4), (30, 0.1, 3), (10, 0.3, 3)])
def test_a_target_is_at_least_that_fraction(neurons: int, sparsity: float, closed: int) -> None:
    gate = SilentGate(neurons, generator=generator(0))
    gate.log_lambda.grad = torch.arange(1.0, neurons + 1)
    policy = over(Target(sparsity), gate)
    for _ in range(1500):
        policy.after_update(32)
    assert int((~gate.is_open()).sum()) == closed


def test_a_target_closes_the_least_relevant_neurons_and_gives_them_back() -> None:
    torch.manual_seed(0)
    gate = SilentGate(10, generator=generator(0))
    policy = over(Target(0.3), gate)
    for needed in (torch.arange(10) >= 3, torch.arange(10) < 7):
        for _ in range(4000):
            gate.zero_grad()
            (gate(torch.ones(32, 10)) * torch.randn(32, 10) * (0.1 + needed)).sum(1).mean().backward()
            policy.after_update(32)
        assert gate.is_open().tolist() == needed.tolist()


def test_log_lambda_is_moved_by_its_policy_or_by_the_optimiser() -> None:
    ratio, variance = RatioGate(3), VarianceGate(3)
    assert [id(each) for each in over(Natural(0.1), ratio).moved()] == [id(ratio.log_lambda)]
    assert over(KL(0.1), variance).moved() == [] and over(Natural(0.1), ratio).losses() == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KL(0.0), "`eta` is above 0, not 0.0; without gates use `gates=off`"),
        (lambda: KL(0.1, anneal=-1.0), "`anneal` is 0"),
        (lambda: Natural(0.1, start="ajar"), "`start` is one of open, closed, not 'ajar'"),
        (lambda: Target(1.0), "between 0 and 1, not 1.0"),
        (lambda: Target(0.0), "between 0 and 1, not 0.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(make: type[Gating], message: str) -> None:
    with pytest.raises(SnclError) as error:
        make()
    assert message in str(error.value)
