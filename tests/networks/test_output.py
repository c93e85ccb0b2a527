"""More outputs for a network: which layer yields the logits, and that adding to it leaves all else as it was."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.networks.output import find_output, widen
from sncl.networks.resnet import ResNet18


class TaskEnd(nn.Module):
    """A network whose logits are made from its head by a function."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear(4, 6)
        self.head, self.other = nn.Linear(6, 3), nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x).relu()
        z: Tensor = self.head(h)
        if self.kind == "scaled":
            return z.unsqueeze(1).squeeze(1) * 2
        if self.kind == "log softmax":
            return F.log_softmax(z, 1)
        if self.kind == "softmax":
            return z.softmax(1)
        if self.kind == "normalised":
            return F.normalize(z)
        if self.kind == "norm":
            normed: Tensor = self.norm(z)
            return normed
        if self.kind == "two heads":
            summed: Tensor = z + self.other(h)
            return summed
        return F.linear(h, self.head.weight)  # "by hand": the layer itself never runs


def everywhere() -> list[tuple[nn.Module, str, tuple[int, ...]]]:
    convolution = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    return [
        (MLP(4, 3, 8), "head", (4,)),
        (
            nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Sequential(nn.Dropout(), nn.Linear(5, 3, bias=False))),
            "2.1",
            (4,),
        ),
        (ResNet18(3, width=4), "head", (3, 8, 8)),
        (convolution, "2", (1, 6, 6)),
        (TaskEnd("scaled"), "head", (4,)),
        (MLP(4, 3, 8).double(), "head", (4,)),
    ]


@pytest.mark.parametrize("number", range(len(everywhere())))
def test_old_logits_keep_every_bit_and_new_ones_are_zero(number: int) -> None:
    torch.manual_seed(0)
    net, name, shape = everywhere()[number]
    x = torch.rand(7, *shape, dtype=next(net.parameters()).dtype)
    net.eval()
    before, weights = net(x), {id(parameter): parameter.clone() for parameter in net.parameters()}
    assert find_output(net, x[:2]) == name
    widen(net, name, 2)
    widen(net, name, 1)
    after = net(x)
    assert after.shape == (7, 6) and torch.equal(after[:, :3], before) and not after[:, 3:].any()
    kept = {id(parameter): parameter for parameter in net.parameters()}
    assert all(torch.equal(kept[key], value) for key, value in weights.items())  # the same parameters, not copies
    after.logsumexp(1).sum().backward()
    assert all(parameter.grad is not None for part in net.get_submodule(name).parts for parameter in part.parameters())
    assert torch.equal(deepcopy(net)(x), after)


@pytest.mark.parametrize("kind", ["log softmax", "softmax", "normalised", "norm", "two heads", "by hand"])
def test_logits_that_are_not_one_layers_outputs_are_refused(kind: str) -> None:
    torch.manual_seed(0)
    net = TaskEnd(kind)
    names = list(net.state_dict())
    with pytest.raises(SnclError, match=r"cannot be added to this network: its logits must be what one nn\.Linear"):
        find_output(net, torch.randn(2, 4))
    assert list(net.state_dict()) == names


def test_a_bare_layer_has_nothing_around_it_to_grow_in() -> None:
    with pytest.raises(SnclError, match="inside it"):
        find_output(nn.Linear(4, 3), torch.randn(2, 4))


def test_nothing_random_is_drawn_and_no_hook_runs_twice() -> None:
    net, seen = MLP(4, 3, 8), []
    net.head.register_forward_hook(lambda *_: seen.append(1))
    before = torch.get_rng_state()
    widen(net, "head", 2)
    net(torch.rand(1, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), before) and len(seen) == 1
