"""The fully connected network of the MNIST streams, and one of any depth for tables."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Two hidden layers with ReLU; Xavier-uniform weights and zero biases.

    784-100-100-10 has 89,610 parameters. ``layer1`` and ``layer2`` are the hidden activations after ReLU.
    """

    def __init__(self, inputs: int, classes: int, width: int = 100) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(inputs, width), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer2(self.layer1(x.flatten(1)))  # [rows, width]
        logits: Tensor = self.head(hidden)
        return logits


def dense(inputs: int, classes: int, widths: Sequence[int]) -> nn.Sequential:
    """Hidden layers of these widths with ReLU, initialised as :class:`MLP` is."""
    layers: list[nn.Module] = []
    for before, width in zip((inputs, *widths), widths, strict=False):
        layers += [nn.Linear(before, width), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear((inputs, *widths)[-1], classes))
    _initialise(net)
    return net


def _initialise(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
