"""The fully connected network of the MNIST streams."""

from __future__ import annotations

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
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer2(self.layer1(x.flatten(1)))  # [rows, width]
        logits: Tensor = self.head(hidden)
        return logits
