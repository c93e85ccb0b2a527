"""The columns of a progressive network: each reads the hidden layers of all earlier ones.

A learned scale for every incoming channel, which starts small, brings the activations of old columns to the size of the
new one's; lateral connections with one hidden layer turn them into what is added to the new column's own.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18


class Scale(nn.Module):
    """A factor for each channel, uniform in [0, 0.1) at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(0.1 * torch.rand(channels))

    def forward(self, h: Tensor) -> Tensor:
        return h * self.factor.view(-1, *[1] * (h.dim() - 2))


class MLPColumn(nn.Module):
    """h1 = relu(W1 x),  h2 = relu(W2 h1 + lateral(old h1)),  logits = W3 h2 + lateral(old h2)."""

    def __init__(self, net: MLP, columns: int) -> None:
        super().__init__()
        self.net = net
        width, classes = net.head.in_features, net.head.out_features
        self.laterals = nn.ModuleList(self._lateral(columns, width, made) for made in (width, classes) if columns)

    @staticmethod
    def _lateral(columns: int, width: int, made: int) -> nn.Module:
        reading, writing = nn.Linear(columns * width, width), nn.Linear(width, made, bias=False)
        nn.init.xavier_uniform_(reading.weight)
        nn.init.zeros_(reading.bias)
        nn.init.xavier_uniform_(writing.weight)
        return nn.Sequential(Scale(columns * width), reading, nn.ReLU(), writing)

    def fresh(self, columns: int) -> MLPColumn:
        """A new column like this one, that reads so many earlier ones."""
        width, inputs = next(self.net.layer1.parameters()).shape
        return MLPColumn(MLP(inputs, self.net.head.out_features, width), columns)

    def forward(self, x: Tensor, old: list[list[Tensor]]) -> tuple[list[Tensor], Tensor]:
        """The hidden layers and the logits; ``old`` are the hidden layers of each earlier column."""
        h1 = self.net.layer1(x.flatten(1))
        if not old:
            h2 = self.net.layer2(h1)
            return [h1, h2], self.net.head(h2)
        map2, relu2 = self.net.layer2
        lateral1, lateral2 = self.laterals
        old1, old2 = (torch.cat(layer, 1) for layer in zip(*old, strict=True))
        h2 = relu2(map2(h1) + lateral1(old1))
        return [h1, h2], self.net.head(h2) + lateral2(old2)


class ResNetColumn(nn.Module):
    """h_i = stage_i(h_(i-1)) + lateral stage_i(relu(conv1x1(old h_(i-1)))) for i > 1, and so for the head."""

    def __init__(self, net: ResNet18, columns: int) -> None:
        super().__init__()
        self.net = net
        self.laterals = nn.ModuleList()
        if columns:
            lateral = _another(net)
            width = net.head.in_features // 8
            for factor, stage in ((1, lateral.layer2), (2, lateral.layer3), (4, lateral.layer4)):
                inputs, outputs = columns * factor * width, factor * width
                self.laterals.append(nn.Sequential(Scale(inputs), nn.Conv2d(inputs, outputs, 1), nn.ReLU(), stage))
            inputs, outputs = columns * 8 * width, 8 * width
            self.laterals.append(nn.Sequential(Scale(inputs), nn.Linear(inputs, outputs), nn.ReLU(), lateral.head))

    def fresh(self, columns: int) -> ResNetColumn:
        """A new column like this one, that reads so many earlier ones."""
        return ResNetColumn(_another(self.net), columns)

    def forward(self, x: Tensor, old: list[list[Tensor]]) -> tuple[list[Tensor], Tensor]:
        """The outputs of the stages, the last one pooled, and the logits; ``old`` are those of each earlier column."""
        net = self.net
        olds = [torch.cat(stage, 1) for stage in zip(*old, strict=True)]
        hidden: list[Tensor] = [net.layer1(net.stem(x))]
        for number, stage in enumerate((net.layer2, net.layer3, net.layer4)):
            own = stage(hidden[-1])
            hidden.append(own + self.laterals[number](olds[number]) if old else own)
        hidden[-1] = hidden[-1].mean((2, 3))
        logits: Tensor = net.head(hidden[-1])
        return hidden, logits + self.laterals[-1](olds[-1]) if old else logits


def _another(net: ResNet18) -> ResNet18:
    """A network of the same shape with weights of its own."""
    width, channels, *_ = next(net.stem.parameters()).shape
    return ResNet18(net.head.out_features, channels, width)


class Progressive(nn.Module):
    """A network of columns, of which only the newest is trained; the first one is the given network.

    The others always stay in evaluation mode, so nothing about them changes any more.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        if isinstance(net, MLP):
            self.first: MLPColumn | ResNetColumn = MLPColumn(net, 0)
        elif isinstance(net, ResNet18):
            self.first = ResNetColumn(net, 0)
        else:
            raise SnclError(f"PNN knows how to put columns beside MLP and ResNet18, not {type(net).__name__}")
        self.later = nn.ModuleList()

    @property
    def newest(self) -> nn.Module:
        return self.later[-1] if len(self.later) else self.first

    def grow(self) -> None:
        """Freeze all columns and add a new one."""
        like = next(self.first.parameters())
        for parameter in self.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        with like.device:  # drawn there, too
            self.later.append(self.first.fresh(1 + len(self.later)).to(like.dtype))
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for column in (self.first, *self.later):
            column.train(mode and column is self.newest)
        return self

    def forward(self, x: Tensor, column: int | None = None) -> Tensor:
        """The logits of a column, of the newest one if there is no such column yet. [rows, classes]"""
        hidden, logits = self.first(x, [])
        old: list[list[Tensor]] = []
        for later in self.later[:column]:
            old.append(hidden)
            hidden, logits = later(x, old)
        answer: Tensor = logits
        return answer
