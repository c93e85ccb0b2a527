"""Pruning networks nobody designed: random operations in a random order, gates anywhere, of either sign."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.gating.gate import Gate, ReserveGate, VarianceGate
from sncl.networks.pruning.prune import pruned

SIZE, STEPS = 6, 9
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.Hardtanh, nn.Identity, nn.ReLU6)


class Random(nn.Module):
    """Each step makes a tensor out of one or two of those there are; all of them reach the output."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.plan: list[tuple[str, int, int]] = []
        self.layers = nn.ModuleDict()
        widths = [3]
        for step in range(STEPS):
            a, b = self.draw.randrange(len(widths)), self.draw.randrange(len(widths))
            same = [n for n, width in enumerate(widths) if width == widths[a]]
            kinds = ["map", "map", "map", "depthwise", "cat", "excite", "sum", "product", "halves", "shuffle", "pool"]
            kind = self.draw.choice(kinds)
            if kind in ("sum", "product"):
                b = self.draw.choice(same)
            if kind in ("halves", "shuffle") and widths[a] % 2:
                kind = "map"
            out = {"cat": widths[a] + widths[b]}.get(kind, widths[a])
            if kind == "map":
                out = self.draw.choice([4, 4, 6, 8])
                groups = 2 if widths[a] % 2 == 0 and self.draw.random() < 0.2 else 1
                parts: list[nn.Module] = [nn.Conv2d(widths[a], out, 3, padding=1, groups=groups)]
                parts += [nn.BatchNorm2d(out)] * (self.draw.random() < 0.6)
                parts += [self.draw.choice(ACTIVATIONS)()]
                self.layers[f"s{step}"] = nn.Sequential(*parts)
            if kind == "depthwise":
                times = self.draw.choice([1, 2])
                out = times * widths[a]
                bias = self.draw.random() < 0.5
                self.layers[f"s{step}"] = nn.Conv2d(widths[a], out, 3, padding=1, groups=widths[a], bias=bias)
            if kind == "excite":
                self.layers[f"s{step}"] = nn.Linear(widths[a], widths[a])
            self.plan.append((kind, a, b))
            widths.append(out)
        self.flat = self.draw.random() < 0.5
        self.hidden = nn.ModuleList(nn.Linear(width * (SIZE * SIZE if self.flat else 1), 7) for width in widths)
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for step, (kind, a, b) in enumerate(self.plan):
            h, layer = made[a], f"s{step}"
            if kind in ("map", "depthwise"):
                h = self.layers[layer](h)
            elif kind == "cat":
                h = torch.cat([h, made[b]], 1)
            elif kind == "excite":
                h = h * torch.sigmoid(self.layers[layer](h.mean((2, 3))))[:, :, None, None]
            elif kind == "sum":
                h = h + made[b]
            elif kind == "product":
                h = h * made[b]
            elif kind == "halves":
                first, second = h.chunk(2, 1)
                h = torch.cat([second, first], 1)
            elif kind == "shuffle":
                h = h.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
            else:
                h = F.max_pool2d(h, 3, 1, 1)
            made.append(h)
        parts = [each(h.flatten(1) if self.flat else h.mean((2, 3))) for each, h in zip(self.hidden, made, strict=True)]
        return self.head(torch.tanh(torch.stack(parts).sum(0)))


def removed(seed: int, kind: type[Gate]) -> int:
    """How many neurons are taken out of a random network that then computes the same."""
    torch.manual_seed(seed)
    net, x = Random(seed).double(), torch.randn(3, 3, SIZE, SIZE).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2.0)  # type: ignore[arg-type]
            nn.init.normal_(module.bias)
    leaves = [name for name, module in net.named_modules() if not list(module.children()) and name != "head"]
    places = tuple(name for name in leaves if net.draw.random() < 0.6 and name) or ("hidden.0",)
    attach_gates(net, x, places, make=kind)
    for _, gate in gates(net):
        with torch.no_grad():
            gate.mu.normal_().add_(1)
            closed = torch.rand(gate.channels) < 0.6
            if isinstance(gate, VarianceGate):
                gate.log_variance.copy_(torch.where(closed, 30.0, -30.0))
            else:
                gate.opened.copy_(~closed)
    net.double().eval()
    found = pruned(net, x)
    other = torch.randn(5, 3, SIZE, SIZE).double()
    with torch.no_grad():
        torch.testing.assert_close(found.net(other), net(other), atol=1e-10, rtol=1e-10)
    assert found.note is None
    return sum(layer.neurons - layer.left for layer in found.layers.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ReserveGate, VarianceGate])
def test_random_networks(kind: type[Gate]) -> None:
    assert sum(removed(seed, kind) > 0 for seed in range(40)) > 20
