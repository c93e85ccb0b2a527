"""A stream small enough for every test: two tasks of blobs, whose classes are 0, 1 first and 2, 3 later."""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.methods.method import Method
from sncl.networks.mlp import MLP
from sncl.tensors.random import generator
from sncl.training.learner import Learner

CLASSES, FEATURES = 4, 12


def batches(count: int, rows: int = 8, seed: int = 0, features: int = FEATURES) -> list[tuple[Tensor, Tensor]]:
    """The stream in ``count`` batches, half of them for each task."""
    numbers = generator(seed, "blobs")
    centres = 3 * torch.randn(CLASSES, features, generator=numbers)
    made = []
    for number in range(count):
        y = torch.randint(2, (rows,), generator=numbers) + 2 * (number >= count // 2)
        made.append((centres[y] + torch.randn(rows, features, generator=numbers), y))
    return made


def kept(method: Method, seed: int) -> float:
    """Accuracy on the first of the two tasks when both are learned."""
    torch.manual_seed(seed)
    net = MLP(FEATURES, CLASSES, width=16)
    learner = Learner(net, method, memory=20, replay=8, lr=0.05, seed=seed, device="cpu")
    stream = batches(60, seed=seed)
    for number, (x, y) in enumerate(stream, start=1):
        learner.learn(x, y)
        if number in (30, 60):
            learner.boundary()
    x, y = (torch.cat(parts) for parts in zip(*stream[:30], strict=True))
    return (learner.predict(x) == y).float().mean().item()
