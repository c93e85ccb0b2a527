"""The paper's networks, gates on any network, and taps."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates, open_neurons
from sncl.networks.layers import find_sites
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.tensors.random import generator


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_the_papers_networks_have_the_papers_sizes() -> None:
    assert parameters(MLP(784, 10)) == 89_610
    assert parameters(ResNet18(10)) == 11_173_962
    assert parameters(ResNet18(200)) == 11_271_432
    assert ResNet18(10)(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert ResNet18(200, width=8)(torch.rand(2, 3, 64, 64)).shape == (2, 200)


def test_mlp_starts_xavier_uniform_with_zero_biases() -> None:
    torch.manual_seed(0)
    net = MLP(784, 10)
    bound = math.sqrt(6 / (784 + 100))
    weight = net.layer1[0].weight
    assert weight.abs().max() <= bound and weight.abs().max() > 0.99 * bound
    assert not net.layer1[0].bias.any() and not net.head.bias.any()


# --- where gates stand ------------------------------------------------------------------------------------------------


class Functional(nn.Module):
    """conv -> BatchNorm -> F.relu, twice, with a residual sum: no activation is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.hidden, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.head(F.relu(self.hidden(x.mean((2, 3)))))


class ActivationFirst(nn.Module):
    """conv -> ReLU -> BatchNorm: a gate behind the ReLU would be divided out again."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class SharedActivation(nn.Module):
    """The usual library ResNet block: one ReLU module serves the whole block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.stem, self.stem_relu = nn.Conv2d(3, 3, 1), nn.ReLU()
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(self.stem_relu(self.stem(x)))))
        return self.head(self.relu(self.bn2(self.conv2(x)) + x).mean((2, 3)))


def names(net: nn.Module, example: Tensor) -> list[str]:
    return [site.name for site in find_sites(net, example)]


def test_sites_are_found_behind_nonlinearities_and_on_residual_sums() -> None:
    images = torch.rand(2, 3, 16, 16)
    assert names(MLP(12, 3), torch.rand(2, 12)) == ["layer1.1", "layer2.1"]
    blocks = [f"layer{s}.{b}.relu{r}" for s in range(1, 5) for b in range(2) for r in (1, 2)]
    assert names(ResNet18(4, width=8), images) == ["stem.2", *blocks]
    assert [site.channels for site in find_sites(ResNet18(4, width=8), images)][:3] == [8, 8, 8]


def test_sites_are_never_in_front_of_batchnorm_and_never_the_logits() -> None:
    images = torch.rand(2, 3, 16, 16)
    assert names(Functional(), images) == ["bn1", "bn2", "hidden"]
    assert names(ActivationFirst(), images) == ["body.2"]
    assert names(SharedActivation(), images) == ["bn1", "bn2", "stem_relu"]
    in_place = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True), nn.Linear(5, 2))
    assert names(in_place, torch.rand(3, 4)) == ["2"]
    with pytest.raises(SnclError, match="name the layers"):
        find_sites(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(3, 4))


@pytest.mark.parametrize(
    "make", [lambda: MLP(48, 3), lambda: ResNet18(3, width=4), Functional, ActivationFirst, SharedActivation]
)
def test_gates_attach_to_any_network_and_copies_have_their_own(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 3, 4, 4) if isinstance(make(), MLP) else torch.rand(4, 3, 16, 16)
    net = make()
    plain = net.eval()(x)
    attach_gates(net, x, generator=generator(0))
    for _, gate in gates(net):
        with torch.no_grad():
            gate.mu.fill_(1.0)
    assert torch.allclose(net.eval()(x), plain, atol=1e-6)  # an open gate of mean 1 changes nothing
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for _, gate in gates(twin):
            gate.mu.zero_()
    assert torch.allclose(net.eval()(x), plain, atol=1e-6)
    assert not torch.allclose(twin.eval()(x), plain, atol=1e-3)
    net.train()(x).sum().backward()
    assert all(value.grad is not None for _, gate in gates(net) for value in gate.parameters())


def test_gates_on_named_layers_and_clear_errors() -> None:
    net = attach_gates(MLP(12, 3), torch.rand(2, 12), layers=("layer1",))
    assert [name for name, _ in gates(net)] == ["layer1"] and open_neurons(net)["layer1"].all()
    with pytest.raises(SnclError, match="once"):
        attach_gates(net, torch.rand(2, 12))
    with pytest.raises(SnclError, match=r"no layer 'nope'; it has: layer1, layer1.0"):
        attach_gates(MLP(12, 3), torch.rand(2, 12), layers=("nope",))


# --- taps ------------------------------------------------------------------------------------------------------------


def test_taps_read_what_the_next_layer_gets_gates_included() -> None:
    net = MLP(12, 3)
    tapped = Tapped(attach_gates(net, torch.rand(2, 12)), ("layer2.1", "layer1"))
    with torch.no_grad():
        next(gate for name, gate in gates(net) if name == "layer2.1").mu.fill_(2.0)
    x = torch.rand(5, 12)
    logits, features = tapped.eval()(x)
    assert torch.allclose(net.head(features["layer2.1"]), logits)
    assert torch.allclose(features["layer2.1"], 2 * F.relu(net.layer2[0](features["layer1"])))


def test_joined_passes_equal_single_ones_and_batchnorm_keeps_them_apart() -> None:
    parts = [torch.rand(size, 12) for size in (3, 5, 2)]
    tapped = Tapped(MLP(12, 3), ("layer1",))
    for together, x in zip(tapped.passes(*parts), parts, strict=True):
        alone = tapped(x)
        assert torch.allclose(together.logits, alone.logits, atol=1e-6)
        assert torch.allclose(together.features["layer1"], alone.features["layer1"], atol=1e-6)
    normed = Tapped(nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)))
    for together, x in zip(normed.passes(*parts), parts, strict=True):
        assert torch.equal(together.logits, normed(x).logits)


def test_the_tapped_network_itself_works_as_before() -> None:
    net = MLP(12, 3)
    tapped = Tapped(net, ("layer1",))
    x = torch.rand(5, 12)
    assert torch.equal(net(x), net(x)) and torch.equal(net(x), tapped(x).logits)


def test_a_layer_that_runs_twice_cannot_be_tapped() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    with pytest.raises(SnclError, match="more than once"):
        Tapped(Twice(), ("layer",))(torch.rand(2, 4))
