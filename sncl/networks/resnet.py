"""ResNet-18 for small images, the network of the CIFAR-10 and Tiny ImageNet streams.

He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, CVPR 2016, with the stem of the continual
learning literature: one 3x3 convolution of stride 1 and no pooling before the first stage.
"""

from __future__ import annotations

from torch import Tensor, nn

from sncl.networks.norm import PassNorm


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: ``relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.bn1 = PassNorm(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = _convolution(outputs, outputs, 3, 1)
        self.bn2 = PassNorm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_convolution(inputs, outputs, 1, stride), PassNorm(outputs))
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(x)))
        out: Tensor = self.relu2(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return out


class ResNet18(nn.Module):
    """Four stages of two blocks with 64, 128, 256 and 512 channels; 11,173,962 parameters for 10 classes.

    ``layer1`` to ``layer4`` are the outputs of the stages; the classifier reads ``layer4`` averaged over space.
    """

    def __init__(self, classes: int, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(_convolution(channels, width, 3, 1), PassNorm(width), nn.ReLU())
        self.layer1 = nn.Sequential(Block(width, width, 1), Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))  # [rows, 8 width, h/8, w/8]
        logits: Tensor = self.head(maps.mean((2, 3)))
        return logits
