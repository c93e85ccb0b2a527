"""Further neurons closed for a while in evaluation: gates of every kind, and nothing stays of it."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from sncl.networks.gating.attach import attach_gates, closing, gates, open_neurons
from sncl.networks.gating.gate import Gate, ReserveGate, VarianceGate
from sncl.networks.mlp import MLP
from sncl.networks.pruning.prune import pruned
from sncl.tensors.random import generator

X = torch.randn(40, 12, generator=generator(0))
SHUT = torch.arange(8) < 3


def network(kind: type[Gate]) -> MLP:
    """With one neuron of each layer closed by itself, the last one."""
    torch.manual_seed(0)
    net = MLP(12, 3, width=8)
    attach_gates(net, X[:2], make=kind, generator=generator(1))
    with torch.no_grad():
        for _, gate in gates(net):
            if isinstance(gate, ReserveGate):
                gate.opened[-1] = False
            else:
                gate.get_parameter("mu")[-1] = 1e-3
    return net


def everywhere(net: MLP, shut: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: shut for name, _ in gates(net)}


@pytest.mark.parametrize("kind", [ReserveGate, VarianceGate])
def test_closed_neurons_are_silent_and_can_be_removed(kind: type[Gate]) -> None:
    net = network(kind).eval()
    responses: dict[str, torch.Tensor] = {}
    for name, gate in gates(net):
        gate.register_forward_hook(lambda gate, given, h, name=name: responses.update({name: h.detach()}))
    whole, before = net(X).detach(), deepcopy(net.state_dict())
    with closing(net, everywhere(net, SHUT)):
        closed = net(X).detach()
        for name, is_open in open_neurons(net).items():
            assert is_open.tolist() == [False] * 3 + [True] * 4 + [False]
            assert (responses[name][:, ~is_open] == 0).all() and (responses[name][:, is_open] != 0).any()
        small = pruned(net, X[:3])
    assert all(layer.left == 4 for layer in small.layers.values())
    torch.testing.assert_close(small.net(X), closed)
    assert torch.equal(net(X), whole) and not torch.equal(closed, whole)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("kind", [ReserveGate, VarianceGate])
def test_training_does_not_know_of_it(kind: type[Gate]) -> None:
    net = network(kind).train()
    torch.manual_seed(1)
    usual = net(X)
    torch.manual_seed(1)
    with closing(net, everywhere(net, SHUT)):
        assert torch.equal(net(X), usual)


def test_an_error_ends_it_and_blocks_may_lie_in_each_other() -> None:
    net = network(ReserveGate).eval()
    with closing(net, everywhere(net, SHUT)):
        with pytest.raises(KeyError), closing(net, everywhere(net, ~SHUT)):
            assert not any(is_open[3:].any() for is_open in open_neurons(net).values())
            raise KeyError
        assert all(is_open.tolist() == [False] * 3 + [True] * 4 + [False] for is_open in open_neurons(net).values())
    assert all(int(is_open.sum()) == 7 for is_open in open_neurons(net).values())
