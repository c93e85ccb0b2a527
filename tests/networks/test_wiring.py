"""Where gates and features are found in networks of unusual kinds, and what is said where they are not."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.layers import find_features, find_sites, named_sites
from sncl.networks.pruning.prune import pruned
from sncl.networks.taps import Tapped, call
from sncl.tensors.random import generator

SEQUENCES = torch.rand(2, 7, 5)


class Built(nn.Module):
    """Modules by name, and a function of them and the input."""

    def __init__(self, run: Any, **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def places(net: nn.Module, x: Tensor = SEQUENCES) -> tuple[list[str], list[str]]:
    """Where gates stand, and what is replayed."""
    return [site.name for site in find_sites(net, x)], [site.name for site in find_features(net, x)]


def lstm(last_state: bool) -> nn.Module:
    run = (lambda n, x: n.head(n.cells(x)[1][0][-1])) if last_state else (lambda n, x: n.head(n.cells(x)[0][:, -1]))
    return Built(run, cells=nn.LSTM(5, 8, batch_first=True), head=nn.Linear(8, 3))


def attention() -> nn.Module:
    def run(n: Any, x: Tensor) -> Tensor:
        h = n.embed(x)
        out: Tensor = n.head((h + n.attention(h, h, h)[0]).mean(1))
        return out

    parts = {"embed": nn.Linear(5, 8), "attention": nn.MultiheadAttention(8, 2, batch_first=True)}
    return Built(run, **parts, head=nn.Linear(8, 3))


def encoder(batch_first: bool) -> nn.Module:
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first), 2, enable_nested_tensor=False
    )
    axis = 1 if batch_first else 0

    def run(n: Any, x: Tensor) -> Tensor:
        h = n.embed(x)
        out: Tensor = n.head(n.layers(h if batch_first else h.transpose(0, 1)).mean(axis))
        return out

    return Built(run, embed=nn.Linear(5, 8), layers=layers, head=nn.Linear(8, 3))


def functional(head: bool) -> nn.Module:
    weights = {"first": nn.Parameter(torch.randn(35, 8)), "second": nn.Parameter(torch.randn(8, 3))}
    if head:
        return Built(lambda n, x: n.head(F.relu(x.flatten(1) @ n.first)), **weights, head=nn.Linear(8, 3))
    return Built(lambda n, x: F.relu(x.flatten(1) @ n.first) @ n.second, **weights)


def test_recurrent_attentive_and_functional_networks_are_gated_at_what_the_head_reads() -> None:
    for net in (lstm(False), lstm(True), attention(), functional(head=True)):
        assert places(net) == (["head:input"], ["head:input"])
    words = Built(lambda n, x: n.head(n.words(x)), words=nn.EmbeddingBag(20, 8), head=nn.Linear(8, 3))
    assert places(words, torch.randint(20, (2, 7))) == (["head:input"], ["head:input"])


def test_hidden_units_of_transformer_blocks_are_gated_and_what_attention_reads_is_not() -> None:
    hidden = ["layers.layers.0.linear1", "layers.layers.1.linear1"]
    assert places(encoder(batch_first=True)) == (hidden, hidden)
    assert places(encoder(batch_first=False)) == (hidden, ["head:input"])  # positions first: no feature of a row


def test_layers_that_run_again_are_gated_but_not_replayed() -> None:
    def run(n: Any, x: Tensor) -> Tensor:
        h = x.mean(1)
        for _ in range(3):
            h = n.act(n.layer(h))
        out: Tensor = n.head(h)
        return out

    net = Built(run, layer=nn.Linear(5, 5), act=nn.ReLU(), head=nn.Linear(5, 3))
    assert places(net) == (["act"], ["head:input"])


def test_what_the_logits_do_not_depend_on_is_left_alone() -> None:
    parts = {"layer": nn.Linear(5, 6), "act": nn.ReLU(), "head": nn.Linear(6, 3)}
    unused = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
    net = Built(lambda n, x: (n.unused(x), n.head(n.act(n.layer(x.mean(1)))))[1], **parts, unused=unused)
    assert places(net)[0] == ["act"]


def test_frozen_neurons_are_not_gated_and_frozen_networks_at_their_head() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(35, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    net[1].requires_grad_(False)
    assert places(net) == (["4"], ["4"])
    assert not net[1].weight.requires_grad
    net[3].requires_grad_(False)
    assert places(net) == (["5:input"], ["5:input"])


def test_depthwise_convolutions_carry_neurons_on_and_factors_are_not_gated() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.SiLU())
            self.depthwise = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.BatchNorm2d(6), nn.SiLU())
            self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 2, 1), nn.ReLU())
            self.excite = nn.Sequential(nn.Conv2d(2, 6, 1), nn.Sigmoid())
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.depthwise(self.expand(x))
            out: Tensor = self.head((h * self.excite(self.squeeze(h))).mean((2, 3)))
            return out

    assert places(Block(), torch.rand(2, 3, 8, 8))[0] == ["depthwise.2", "squeeze.2"]
    plain = nn.Sequential(nn.Flatten(), nn.Linear(35, 6), nn.Sigmoid(), nn.Linear(6, 3))
    assert places(plain)[0] == ["2"]  # a sigmoid that multiplies nothing is a nonlinearity as any other


def test_a_network_without_hidden_layers_is_refused_with_what_to_do() -> None:
    for net, names in (
        (functional(head=False), "none that is a module"),
        (nn.Sequential(nn.Flatten(1), nn.Linear(35, 3)), "0, 1"),
    ):
        with pytest.raises(SnclError, match=rf"name the layers in `layers` .*it has: {names}.*`gamma=0`"):
            find_sites(net, SEQUENCES)


def test_channels_of_named_layers() -> None:
    last = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 6), nn.GELU(), nn.Flatten(), nn.Linear(6 * 9, 2))
    example = torch.rand(2, 3, 3, 4)
    assert [site.axis for site in named_sites(last, example, ("0", "1", "2"))] == [-1, -1, -1]
    images = nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 2))
    sites = named_sites(images, example.movedim(-1, 1), ("1", "2", "4:input"))
    assert [(site.channels, site.axis) for site in sites] == [(6, 1), (6, 1), (6, -1)]
    with pytest.raises(SnclError, match="has no layer 'nope:input'"):
        named_sites(images, example.movedim(-1, 1), ("nope:input",))


def test_gates_on_an_input_and_on_the_first_of_several_outputs() -> None:
    torch.manual_seed(0)
    for net, name in ((lstm(True), "head:input"), (lstm(False), "cells")):
        plain = net.eval()(SEQUENCES)
        attach_gates(net, SEQUENCES, layers=(name,), generator=generator(0))
        ((found, gate),) = gates(net)
        assert found == name
        with torch.no_grad():
            gate.mu.fill_(1.0)
        assert torch.allclose(net.eval()(SEQUENCES), plain, atol=1e-6)
        with torch.no_grad():
            gate.mu.fill_(0.0)
        tapped = Tapped(net, (name,))
        logits, features = tapped(SEQUENCES)
        assert torch.equal(logits, net.head.bias.expand(2, 3)) and not features[name].any()


def test_gates_on_an_input_are_pruned() -> None:
    torch.manual_seed(0)
    net = attach_gates(attention(), SEQUENCES, generator=generator(0)).eval()
    with torch.no_grad():
        next(gate for _, gate in gates(net)).mu[::2] = 1e-6
    found = pruned(net, SEQUENCES)
    assert found.note is None and (found.layers["head:input"].neurons, found.layers["head:input"].open) == (8, 4)
    assert next(gates(found.net), None) is None
    assert torch.allclose(found.net(SEQUENCES), net(SEQUENCES), atol=1e-6)


def test_logits_are_found_in_what_networks_return() -> None:
    x = torch.rand(2, 3)
    for wrap in (
        lambda z: z,
        lambda z: (z, "more"),
        lambda z: [z],
        lambda z: {"loss": None, "logits": z},
        lambda z: OrderedDict(logits=z),
    ):
        assert call(Built(lambda n, x, wrap=wrap: wrap(x)), x) is x
    for output, said in (
        ({"hidden": x}, "dict with hidden"),
        ({}, "dict with nothing"),
        ("text", "str"),
        ((), "tuple"),
        (("a", x), "tuple"),
    ):
        with pytest.raises(SnclError, match=rf"returns {said}.*it must return logits"):
            call(Built(lambda n, x, output=output: output), x)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, affine=False)])
def test_batchnorm_bears_a_single_row(norm: nn.Module) -> None:
    net = Tapped(nn.Sequential(nn.Linear(3, 4), norm, nn.ReLU(), nn.Linear(4, 2))).train()
    net(torch.rand(8, 3))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    row = torch.rand(1, 3)
    trained = net(row).logits
    assert norm.training and all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(trained, net.eval()(row).logits)  # by what was seen before
    with pytest.raises(SnclError, match="batches of two samples or more"):
        Tapped(nn.BatchNorm1d(3, track_running_stats=False))(row)
