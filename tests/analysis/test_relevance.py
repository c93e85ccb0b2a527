"""The relevance of neurons equals what a loop over single samples finds, and looking changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.analysis import relevance as module
from sncl.analysis.relevance import relevance
from sncl.methods.sncl import SNCL
from sncl.networks.gating.attach import gates
from sncl.networks.gating.policies import KL, Gating, Grow
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

POLICIES: dict[str, Any] = {"grow": lambda: Grow(0.3), "kl": lambda: KL(0.1)}
NETWORKS: dict[str, Any] = {"mlp": lambda: MLP(12, 4, width=9), "resnet": lambda: ResNet18(4, width=4)}
SHAPES = {"mlp": (12,), "resnet": (3, 8, 8)}


def trained(net: nn.Module, shape: tuple[int, ...], gating: Gating, ema: float = 0.0) -> Learner:
    torch.manual_seed(0)
    learner = Learner(net, SNCL(1.0, 0.5, 0.5, gating), memory=14, lr=0.05, device="cpu", ema=ema)
    for _ in range(6):
        learner.learn(torch.randn(8, *shape), torch.randint(4, (8,)))
    return learner


def one_by_one(learner: Learner, samples: Fields) -> Fields:
    """The same from the responses of single samples, neuron by neuron."""
    places = dict(gates(learner.net.body))
    found = {name: [0.0] * gate.channels for name, gate in places.items()}
    kept: Fields = {}

    def keep(name: str) -> Any:
        def hook(gate: nn.Module, given: Any, output: Tensor) -> None:
            kept[name] = output

        return hook

    handles = [gate.register_forward_hook(keep(name)) for name, gate in places.items()]
    with learner.predicting(), torch.enable_grad():
        for x, y in zip(samples["x"], samples["y"], strict=True):
            loss = F.cross_entropy(learner.net(x[None]).logits, y[None])
            slopes = torch.autograd.grad(loss, list(kept.values()))
            for (name, h), slope in zip(kept.items(), slopes, strict=True):
                for channel in range(len(found[name])):
                    own = (h * slope).movedim(places[name].axis, 0)[channel]
                    found[name][channel] += float(own.detach().double().square().sum()) / len(samples["y"])
    for handle in handles:
        handle.remove()
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("network", NETWORKS)
def test_it_is_that_of_single_samples(network: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = trained(NETWORKS[network](), SHAPES[network], POLICIES[policy](), ema=0.9)
    assert learner.memory is not None
    samples = learner.memory.content()
    monkeypatch.setattr(module, "SAMPLES_AT_ONCE", 5)
    assert len(samples["y"]) == 14  # chunks of 5, 5 and 4
    found, expected = relevance(learner, samples), one_by_one(learner, samples)
    assert found.keys() == expected.keys() == dict(gates(learner.net.body)).keys()
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-3, atol=1e-9 * float(each.max()))
        assert (each > 0).any()


def test_it_is_about_the_network_that_predicts() -> None:
    learner = trained(MLP(12, 4, width=9), (12,), Grow(0.3), ema=0.9)
    assert learner.memory is not None
    averaged = relevance(learner, learner.memory.content())
    with learner.as_trained():
        live = relevance(learner, learner.memory.content())
    assert all((averaged[name] != live[name]).any() for name in live)
    for name, gate in gates(learner.net.body):
        assert (averaged[name][~gate.is_open()] == 0).all()  # a closed neuron has no response


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_stays_of_it(policy: str) -> None:
    learner = trained(MLP(12, 4, width=9), (12,), POLICIES[policy](), ema=0.9)
    assert learner.memory is not None
    before, hooks = learner.state(), [len(gate._forward_hooks) for _, gate in gates(learner.net)]
    gradients = [parameter.grad for parameter in learner.net.parameters()]
    samples = learner.memory.content()
    relevance(learner, samples)
    with pytest.raises(KeyError):
        relevance(learner, {"x": samples["x"]})
    with pytest.raises(IndexError):
        relevance(learner, samples | {"y": samples["y"] + 100})
    after = learner.state()
    assert all(torch.equal(before[name], after[name]) for name in before) and before.keys() == after.keys()
    assert [len(gate._forward_hooks) for _, gate in gates(learner.net)] == hooks
    assert all(new is old for new, old in zip((p.grad for p in learner.net.parameters()), gradients, strict=True))
    assert learner.net.training
