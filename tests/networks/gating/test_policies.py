"""How gates are trained: when neurons in reserve are opened and where, the paper's divergence, and what is refused."""

from __future__ import annotations

import math
from typing import TypeVar

import pytest
import torch
from torch import nn

from sncl.errors import SnclError
from sncl.networks.gating.attach import gates, open_neurons
from sncl.networks.gating.gate import Gate, ReserveGate, VarianceGate
from sncl.networks.gating.policies import KL, Gating, Grow, closed_by_layer
from sncl.networks.mlp import MLP, dense
from sncl.networks.resnet import ResNet18
from sncl.tensors.random import generator

Policy = TypeVar("Policy", bound=Gating)


def over(policy: Policy, *gates: Gate) -> Policy:
    """The policy, with these gates to train."""
    policy.gates = gates
    return policy


def grown(net: nn.Module, x: torch.Tensor, samples: int, **settings: float) -> dict[str, list[bool]]:
    """Which neurons of a network are open after so many samples, by layer."""
    policy = Grow(**settings)  # type: ignore[arg-type]
    policy.attach(net, x, generator(0))
    for _ in range(samples):
        policy.after_update(1)
    return {name: opened.tolist() for name, opened in open_neurons(net).items()}


@pytest.mark.parametrize(("samples", "part"), [(0, 0.2), (40, 0.2), (250, 0.5), (810, 0.9), (1000, 1.0), (1500, 1.0)])
def test_neurons_open_with_the_square_root_of_the_samples(samples: int, part: float) -> None:
    found = grown(MLP(6, 3, width=100), torch.rand(2, 6), samples, sparsity=0.0, start=0.2, fill=1.0)
    for opened in found.values():
        assert sum(opened) == round(100 * part)
        assert opened == sorted(opened, reverse=True)  # in their order


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(0, [50, 50]), (500, [71, 71]), (1000, [100, 100]), (1500, [100, 85]), (2000, [100, 70]), (3000, [100, 40])],
)
def test_spare_neurons_help_at_first_and_are_closed_one_after_the_other(samples: int, expected: list[int]) -> None:
    found = grown(MLP(6, 3, width=100), torch.rand(2, 6), samples, sparsity=0.3, start=0.5, fill=1.0, settle=2.0)
    for opened, count in zip(found.values(), expected, strict=True):
        assert opened == [True] * count + [False] * (100 - count)


def test_with_spare_neurons_open_at_first_the_first_step_is_that_without_gates() -> None:
    net = MLP(6, 3, width=100)
    Grow(0.3, settle=1.0).attach(net, torch.rand(2, 6), generator(0))
    assert all(bool((gate.factor() == 1).all()) for _, gate in gates(net))


@pytest.mark.parametrize(
    ("sparsity", "neurons", "closed"),
    [
        (0.3, 0, [0, 60]),
        (0.5, 0, [32, 68]),
        (0.9, 0, [90, 90]),
        (0.3, 200, [0, 0]),
        (0.3, 160, [0, 40]),
        (0.0, 0, [0, 0]),
    ],
)
def test_an_mlp_closes_its_last_layer_first(sparsity: float, neurons: int, closed: list[int]) -> None:
    found = grown(MLP(6, 3, width=100), torch.rand(2, 6), 0, sparsity=sparsity, neurons=neurons, start=1.0)
    assert [opened.count(False) for opened in found.values()] == closed


def test_a_narrow_last_layer_is_closed_like_the_others() -> None:
    found = grown(MLP(6, 3, width=20), torch.rand(2, 6), 0, sparsity=0.3, start=1.0)
    assert [opened.count(False) for opened in found.values()] == [6, 6]


def test_at_least_that_part_is_closed_and_every_layer_keeps_a_neuron() -> None:
    found = grown(dense(4, 2, (7, 5, 1)), torch.rand(2, 4), 0, sparsity=0.5, start=1.0)
    assert [opened.count(False) for opened in found.values()][2] == 0
    assert sum(opened.count(False) for opened in found.values()) >= 0.5 * 13
    assert closed_by_layer([ReserveGate(11)], 4) == [4]  # the only layer


def test_a_residual_network_is_closed_evenly_and_in_the_same_channels() -> None:
    found = grown(ResNet18(10, width=8), torch.rand(2, 3, 8, 8), 0, sparsity=0.5, start=1.0)
    for opened in found.values():
        assert opened == [True] * (len(opened) // 2) + [False] * (len(opened) // 2)
    assert len(found) == 17


def test_means_start_where_a_layer_made_that_small_would_be_but_for_residual_sums() -> None:
    mlp = grown_means(MLP(6, 3, width=100), torch.rand(2, 6))
    assert mlp == pytest.approx({"layer1.1": 1.0, "layer2.1": math.sqrt(100 / 40)})
    residual = grown_means(ResNet18(10, width=10), torch.rand(2, 3, 8, 8))
    assert {name for name, mean in residual.items() if mean == 1.0} == {
        f"layer{stage}.{block}.relu2" for stage in range(1, 5) for block in range(2)
    }
    assert residual["layer1.0.relu1"] == pytest.approx(math.sqrt(10 / 7))


def grown_means(net: nn.Module, x: torch.Tensor) -> dict[str, float]:
    """The first mean of the gates of each layer, with 30 % closed in the end."""
    Grow(0.3).attach(net, x, generator(0))
    return {name: gate.mu[0].item() for name, gate in gates(net)}


@pytest.mark.parametrize("settle", [0.0, 0.3])
def test_growth_goes_on_where_a_checkpoint_stopped(settle: float) -> None:
    nets = [MLP(6, 3, width=50) for _ in range(2)]
    policies = [Grow(0.2, start=0.1, fill=0.5 if not settle else 0.1, settle=settle) for _ in nets]
    for net, policy in zip(nets, policies, strict=True):
        policy.attach(net, torch.rand(2, 6), generator(0))
    for _ in range(7):
        policies[0].after_update(32)
    nets[1].load_state_dict(nets[0].state_dict())
    policies[1].load_state_dict(policies[0].state_dict())
    for policy in policies:
        policy.after_update(32)
    first, second = ({name: gate.is_open().tolist() for name, gate in gates(net)} for net in nets)
    assert first == second and sum(map(sum, first.values())) not in (0, 80, 100)  # on its way


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


def test_the_price_falls_with_the_samples_seen() -> None:
    policy = KL(0.01, anneal=3.0)
    assert policy.price().item() == pytest.approx(0.01)
    policy.after_update(500)
    assert policy.price().item() == pytest.approx(0.01 / (1 + 3.0 * 0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KL(0.0), "`eta` is above 0, not 0.0; without gates use `gates=off`"),
        (lambda: KL(0.1, anneal=-1.0), "`anneal` is 0"),
        (lambda: Grow(1.0), "`sparsity` is the part of the neurons closed in the end, 0 or more, below 1, not 1.0"),
        (lambda: Grow(-0.1), "`sparsity` is the part of the neurons"),
        (lambda: Grow(0.3, settle=-1.0), "`settle` is the thousands of samples in which spare neurons are closed"),
        (lambda: Grow(0.3, settle=math.inf), "`settle` is the thousands of samples"),
        (lambda: Grow(0.3, start=0.0), "`start` is the fraction of neurons open at first"),
        (lambda: Grow(0.3, fill=0.0), "`fill` is the thousands of samples"),
        (lambda: Grow(0.3, neurons=-1), "`neurons` is how many are open in the end at least, 0 or more, not -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(make: object, message: str) -> None:
    with pytest.raises(SnclError, match=message.replace("(", r"\(")):
        make()  # type: ignore[operator]
