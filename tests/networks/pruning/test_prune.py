"""A pruned network computes what the gated one does, with the closed neurons gone; else it keeps them and says so."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import sncl
from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.gating.gate import Gate, ReserveGate
from sncl.networks.last import tap_last
from sncl.networks.mlp import MLP
from sncl.networks.pruning.prune import Pruned, prune, pruned
from sncl.networks.pruning.scales import ChannelScale
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
EXACT = IMAGES.double()  # in double precision a wrong channel cannot pass for a rounding error


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def gated(
    net: nn.Module,
    example: Tensor = EXACT,
    closed: float = 0.5,
    seed: int = 0,
    layers: tuple[str, ...] | None = None,
) -> nn.Module:
    """``net`` with gates of which that part is closed, and BatchNorms that have seen something."""
    torch.manual_seed(seed)
    net.to(example.dtype)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    attach_gates(net, example, layers, make=ReserveGate)
    for _, gate in gates(net):
        with torch.no_grad():
            gate.mu.uniform_(0.5, 1.5)
            gate.opened.copy_(torch.rand(gate.channels) >= closed)
    return net.to(example.dtype).train()


def close(net: nn.Module, layer: str, *neurons: int) -> None:
    gate = dict(gates(net))[layer]
    with torch.no_grad():
        gate.opened[list(neurons)] = False


def logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def check(net: nn.Module, example: Tensor = EXACT) -> Pruned:
    """Prune, and compare on inputs that pruning has not seen; the network itself stays as it was."""
    state, training = copy.deepcopy(net.state_dict()), net.training
    found = pruned(net, example)
    assert net.training == training and all(torch.equal(net.state_dict()[key], value) for key, value in state.items())
    assert not any(isinstance(module, Gate) for module in found.net.modules()) and not found.net.training
    x = torch.randn(7, *example.shape[1:], generator=torch.Generator().manual_seed(2)).to(example.dtype)
    limit = 1e-12 if example.dtype == torch.float64 else 1e-5
    with torch.no_grad():
        wanted, got = logits(copy.deepcopy(net).eval()(x)), logits(found.net(x))
    assert (got - wanted).abs().max() <= limit * max(1.0, wanted.abs().max().item())
    return found


# --- the paper's networks --------------------------------------------------------------------------------------------


@settings(max_examples=6)
@given(st.floats(0, 1), st.integers(0, 10_000))
def test_an_mlp_has_exactly_its_open_neurons_left(closed: float, seed: int) -> None:
    example = torch.randn(2, 12)
    net = gated(MLP(12, 3, width=10), example, closed, seed)
    found = check(net, example)
    first, second = (max(layer.open, 1) for layer in found.layers.values())
    assert parameters(found.net) == 13 * first + (first + 1) * second + (second + 1) * 3
    assert isinstance(found.net, MLP) and [type(each) for each in found.net.layer1] == [nn.Linear, nn.ReLU]
    assert found.net.layer1[0].out_features == found.net.layer2[0].in_features == first
    assert not any(layer.scaled for layer in found.layers.values()) and found.note is None


@pytest.mark.parametrize("closed", [0.0, 0.6, 1.0])
def test_a_resnet_with_running_statistics(closed: float) -> None:
    net = gated(ResNet18(5, width=8), IMAGES, closed)
    found = check(net, IMAGES)
    assert isinstance(found.net, ResNet18) and found.note is None
    inner = {name: layer for name, layer in found.layers.items() if name.endswith("relu1")}
    assert len(inner) == 8  # nothing else reads what is between two convolutions
    assert all(layer.left == max(layer.open, 1) and not layer.scaled for layer in inner.values())
    if not closed:
        assert parameters(found.net) == parameters(ResNet18(5, width=8))
    else:
        assert parameters(found.net) < (1 - 0.7 * closed) * parameters(net)


class ConvolutionOfAGPU(nn.Conv2d):
    """Rounds what it multiplies, much as a GPU does where TensorFloat-32 is allowed, as it is by default."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.backends.cudnn.allow_tf32:
            return super().forward(x)
        return F.conv2d(x.bfloat16().float(), self.weight.bfloat16().float(), self.bias)


def test_rounding_of_a_gpu_is_no_reason_to_keep_closed_neurons() -> None:
    net = gated(nn.Sequential(ConvolutionOfAGPU(3, 16, 3), nn.ReLU(), ConvolutionOfAGPU(16, 2, 3)), IMAGES)
    before = torch.backends.cudnn.allow_tf32
    found = pruned(net, IMAGES)
    assert found.note is None and found.net[0].out_channels == next(iter(found.layers.values())).open < 16
    assert torch.backends.cudnn.allow_tf32 == before


def test_a_channel_of_a_residual_sum_goes_only_if_it_is_closed_wherever_it_is_read() -> None:
    net = gated(ResNet18(5, width=8), closed=0.0)
    stage = ("stem.2", "layer1.0.relu2", "layer1.1.relu2")
    for layer in stage:
        close(net, layer, 3)
    close(net, "stem.2", 4, 5)
    close(net, "layer1.1.relu2", 5)  # open in the middle
    found = check(net)
    assert isinstance(found.net, ResNet18)
    assert [found.layers[layer].left for layer in stage] == [7, 7, 7]
    assert found.net.stem[0].out_channels == found.net.stem[1].num_features == 7
    assert found.net.layer2[0].conv1.in_channels == found.net.layer2[0].shortcut[0].in_channels == 7


def test_negative_means_are_kept_in_front_of_a_nonlinearity() -> None:
    net = gated(ResNet18(5, width=8), closed=0.3)
    for _, gate in gates(net):
        with torch.no_grad():
            gate.mu.mul_(torch.where(torch.rand(len(gate.mu)) < 0.5, -1.0, 1.0))
    assert check(net).layers["stem.2"].scaled


def test_all_neurons_of_a_layer_closed() -> None:
    for layer in ("stem.2", "layer2.0.relu1"):
        net = gated(ResNet18(5, width=4), closed=0.2)
        close(net, layer, *range(len(dict(gates(net))[layer].mu)))
        assert check(net).layers[layer].open == 0
    net = gated(MLP(12, 3, width=6), torch.randn(2, 12), closed=1.0)
    found = check(net, torch.randn(2, 12))
    with torch.no_grad():
        assert torch.equal(found.net(torch.randn(4, 12)), net.head.bias.expand(4, 3))  # type: ignore[union-attr, operator]


def test_the_network_of_a_learner_and_one_without_gates() -> None:
    learner = sncl.Learner(MLP(12, 4), "sncl", memory=10, device="cpu")
    x, y = torch.randn(8, 12), torch.arange(8) % 4
    learner.learn(x, y)
    small = sncl.prune(learner.net, x)
    assert torch.allclose(small(x), learner.logits(x), atol=1e-5)
    assert not any(module._forward_hooks for module in small.modules())  # no taps
    plain = MLP(12, 4)
    for net in (plain, Tapped(plain), tap_last(plain, x)):
        small = prune(net, x)
        assert type(small) is MLP and small is not plain and torch.equal(small(x), plain(x))
        assert not any(module._forward_pre_hooks for module in small.modules())


def test_what_was_pruned_can_learn_again() -> None:
    small = prune(gated(MLP(12, 4), torch.randn(2, 12)), torch.randn(2, 12))
    learner = sncl.Learner(small, "sncl", memory=10, device="cpu")
    assert learner.learn(torch.randn(8, 12), torch.arange(8) % 4)["labels"].isfinite()
    once = prune(gated(ResNet18(5, width=4)), EXACT)
    assert any(isinstance(module, ChannelScale) for module in once.modules())
    check(gated(copy.deepcopy(once)))
    check(gated(copy.deepcopy(once), layers=("layer1.0.relu2", "stem")))  # where a factor has stayed


# --- networks of others ----------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """As libraries write it: one ReLU for all places, in place, and ``+=``."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = 2 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class LibraryResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(8, 8), Bottleneck(16, 8))
        self.layer2 = nn.Sequential(Bottleneck(16, 16, 2), Bottleneck(32, 16))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x))))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Excitation(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    """As in MobileNet: a depthwise convolution between two pointwise ones, and an excitation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = 4 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(True))
        depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(inner), nn.ReLU6(True))
        self.excite = Excitation(inner)
        self.project = nn.Sequential(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.residual = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(self.excite(self.depthwise(self.expand(x))))
        return x + out if self.residual else out


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.Hardswish())
        self.blocks = nn.Sequential(InvertedResidual(6, 6, 1), InvertedResidual(6, 8, 2))
        self.last = nn.Sequential(nn.Conv2d(8, 16, 1), nn.SiLU())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.last(self.blocks(self.stem(x))), 1).squeeze((2, 3)))


class Dense(nn.Module):
    """Concatenation, a flatten of maps, PReLU, and a convolution in two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.PReLU(6))
        self.second = nn.Sequential(nn.Conv2d(6, 4, 3, 1, 1), nn.LeakyReLU())
        self.third = nn.Sequential(nn.Conv2d(10, 8, 3, 2, 1), nn.ReLU())
        self.grouped = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=2), nn.ReLU())
        self.hidden, self.head = nn.Sequential(nn.Linear(8 * 4 * 4, 12), nn.GELU()), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        third = self.third(torch.cat([first, self.second(first)], 1))
        return self.head(self.hidden(self.grouped(third).view(x.size(0), -1)))


def test_a_bottleneck_resnet_as_libraries_write_it() -> None:
    found = check(gated(LibraryResNet(), closed=0.5))
    assert found.note is None and not any(layer.scaled for layer in found.layers.values())
    inner = [layer for name, layer in found.layers.items() if name.endswith((".bn1", ".bn2"))]
    assert len(inner) == 8 and all(layer.left == layer.open for layer in inner)


def test_inverted_residuals_with_depthwise_convolutions_and_excitation() -> None:
    net = gated(MobileNet(), closed=0.0)
    close(net, "blocks.0.depthwise.2", 1, 2, 5)  # which carries the channels of the expansion on
    close(net, "blocks.1.depthwise.2", 0)
    found = check(net)
    assert found.note is None
    blocks = found.net.blocks
    assert blocks[0].depthwise[0].groups == blocks[0].depthwise[0].in_channels == 21  # type: ignore[index, union-attr]
    assert blocks[0].excite.fc1.in_channels == blocks[0].excite.fc2.out_channels == 21  # type: ignore[index, union-attr]
    assert blocks[1].project[0].in_channels == 23  # type: ignore[index, union-attr]
    check(gated(MobileNet(), closed=0.6))


def test_concatenations_flattened_maps_and_groups() -> None:
    found = check(gated(Dense(), closed=0.5))
    assert found.note is None and isinstance(found.net, Dense)
    layers = {name.partition(".")[0]: layer for name, layer in found.layers.items()}
    assert all(layers[name].left == layers[name].open for name in ("first", "second", "hidden"))
    assert layers["third"].left == layers["grouped"].left == 8  # a convolution in groups keeps what it reads and makes
    net = gated(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 14 * 14, 3)), closed=0.0)
    close(net, "1", 0, 4)
    small = check(net).net
    assert small[3].in_features == 4 * 14 * 14  # type: ignore[index, union-attr]


def test_residual_networks_of_timm() -> None:
    timm = pytest.importorskip("timm")
    for name in ("resnet18", "mobilenetv2_050"):
        images = torch.randn(2, 3, 64, 64)
        net = gated(timm.create_model(name, num_classes=5), images, closed=0.5)
        assert check(net, images).note is None


def test_networks_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[16, 24], depths=[2, 2], num_labels=5)
        net = gated(transformers.ResNetForImageClassification(config), closed=0.5)
        found = check(net)
        assert found.note is None and parameters(found.net) < 0.6 * parameters(net)
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=20,
            image_size=16,
            patch_size=8,
        )
        net = gated(transformers.ViTForImageClassification(config), closed=0.5)
        found = check(net)
        assert found.note is None and all(layer.left == layer.open for layer in found.layers.values())
        small = prune(net, {"pixel_values": EXACT})
        assert parameters(small) == parameters(found.net)


# --- what cannot be removed ------------------------------------------------------------------------------------------


class Awkward(nn.Module):
    """Two convolutions around something that a smaller network would compute differently, or not at all."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.second, self.head = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()), nn.Linear(8, 5)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.between(self.first(x))).mean((2, 3)))


def shuffled(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)


def halves(x: Tensor) -> Tensor:
    return torch.cat([x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1)


def normal(x: Tensor) -> Tensor:
    return F.group_norm(x, 2)


def shares(x: Tensor) -> Tensor:
    return x.softmax(1)


def chunks(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return torch.cat([a * b, a + b], 1)


@pytest.mark.parametrize("between", [shuffled, halves, normal, shares, chunks])
def test_channels_that_are_not_followed_stay(between: Callable[[Tensor], Tensor]) -> None:
    found = check(gated(Awkward(between), closed=0.5))
    first, second = found.layers.values()
    assert (first.left, second.left, found.note) == (8, second.open, None)


def by_count(x: Tensor) -> Tensor:
    return x / x.shape[1]


def by_number(x: Tensor) -> Tensor:
    return x.view(-1, 8, 14, 14)


def by_value(x: Tensor) -> Tensor:
    return x if bool(x.sum() > 0) else -x


@pytest.mark.parametrize(
    ("between", "reason"),
    [(by_count, "computes something else"), (by_number, "cannot be analysed"), (by_value, "cannot be analysed")],
)
def test_a_network_that_cannot_be_pruned_keeps_its_neurons_and_a_warning_says_so(
    between: Callable[[Tensor], Tensor], reason: str
) -> None:
    net = gated(Awkward(between), closed=0.5)
    found = check(net)
    assert found.note is not None and reason in found.note and "\n" not in found.note
    assert all(layer.left == layer.neurons and layer.scaled for layer in found.layers.values())
    with pytest.warns(UserWarning, match="nothing was removed"):
        small = prune(net, EXACT)
    assert sum(isinstance(module, ChannelScale) for module in small.modules()) == 2


def test_a_layer_that_runs_twice_and_weights_that_are_shared() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again = nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Linear(8, 8)
            self.last, self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3)
            self.last[0].weight = self.again.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.last(torch.tanh(self.again(torch.tanh(self.again(self.first(x)))))))

    net = gated(Again(), torch.randn(2, 6), closed=0.5)
    small = check(net, torch.randn(2, 6)).net
    assert small.last[0].weight is small.again.weight  # type: ignore[index, union-attr]


def test_gates_in_front_of_a_batchnorm_or_a_sigmoid_stay_as_factors() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.Identity(), nn.BatchNorm1d(8), nn.Sigmoid(), nn.Linear(8, 3))
    found = check(gated(net, torch.randn(2, 6), layers=("1", "3")), torch.randn(2, 6))
    left = [layer.left for layer in found.layers.values()]
    assert left == [found.layers["3"].open] * 2  # closed in front of the BatchNorm, a neuron is a constant behind it


def test_a_network_that_is_random_in_evaluation_is_refused() -> None:
    net = gated(Awkward(lambda x: x + torch.randn_like(x)))
    with pytest.raises(SnclError, match="differs from the gated one by"):
        prune(net, EXACT)
