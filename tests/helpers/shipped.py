"""Every method as it is shipped: each row of the table of settings, on networks small enough for tests.

What is scaled down is said here and nowhere else: all learners have the same step size, replayed batch and memory,
batches have the size that a test gives them, and the networks are an MLP and a ResNet-18 of few channels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from blobs import CLASSES, FEATURES, batches
from torch import Tensor, nn

from sncl.methods.table import METHODS, Settings
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.settings import TRAINING, defaults_table, known_settings, make_method
from sncl.streams.benchmarks import STREAMS
from sncl.training.learner import Learner

SCALED: dict[str, Any] = {"lr": 0.02, "replay": 8, "memory": 20}
IMAGE = (3, 8, 8)
OF_LEARNERS = ("ema", "momentum", "weight_decay")


class Shipped(NamedTuple):
    """A method with all settings that its training and evaluation have, and whether it needs the ResNet."""

    method: str
    settings: Settings
    resnet: bool = False

    def learner(self, net: nn.Module | None = None, **options: Any) -> Learner:
        """A learner on the given network, or on the small one of this row."""
        torch.manual_seed(0)
        if net is None:
            net = ResNet18(CLASSES, width=4) if self.resnet else MLP(FEATURES, CLASSES, width=16)
        method = make_method(self.method, self.settings)
        trained = {key: float(self.settings[key]) for key in OF_LEARNERS if key in self.settings}
        return Learner(net, method, device="cpu", **(SCALED | trained | options))

    def batches(self, count: int, rows: int = 8, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
        """The two tasks of blobs, as inputs of this row's network and about as large as those of images."""
        shape = IMAGE if self.resnet else (FEATURES,)
        made = batches(count, rows, seed, features=torch.Size(shape).numel())
        return [(x.reshape(-1, *shape) / 4, y) for x, y in made]

    def identity(self) -> Hashable:
        """Equal for rows that differ at most in what is scaled down."""
        return (self.method, self.resnet, *sorted(self.settings.items()))

    def form(self) -> Hashable:
        """Which parts are on: texts as they are, numbers by their sign."""
        chosen = sorted(self.settings.items())
        signs = ((name, value if isinstance(value, str) else (value > 0) - (value < 0)) for name, value in chosen)
        return (self.method, *signs)


def shipped(method: str, row: Settings, stream: str = "", **given: str) -> Shipped:
    """A row of the table, or the usual settings with ``given`` choices.

    A text may name layers, so a row with one gets the kind of network that its stream has.
    """
    settings = TRAINING | known_settings(method, row, given)
    kept = {key: value for key, value in settings.items() if key not in SCALED and key != "batch_size"}
    has_text = any(isinstance(value, str) for value in row.values())
    return Shipped(method, kept, has_text and stream in STREAMS and STREAMS[stream].network != "mlp")


def every_row() -> dict[str, Shipped]:
    """The distinct rows of the table by method, stream and memory; then usual values and choices that no row has."""
    found = {
        f"{method} {stream} {memory}": shipped(method, row, stream)
        for stream, methods in defaults_table().items()
        for method, memories in methods.items()
        for memory, row in memories.items()
    }
    for method, entry in METHODS.items():
        found[method] = shipped(method, {})
        for choice, values in entry.choices.items():
            found |= {f"{method} {choice}={value}": shipped(method, {}, **{choice: value}) for value in values}
    return distinct(found, Shipped.identity)


def distinct(found: dict[str, Shipped], by: Callable[[Shipped], Hashable]) -> dict[str, Shipped]:
    """The first of those that are the same ``by`` something."""
    firsts: dict[Hashable, str] = {}
    for name, each in found.items():
        firsts.setdefault(by(each), name)
    return {name: found[name] for name in firsts.values()}


ROWS = every_row()
FORMS = distinct(ROWS, Shipped.form)  # one row for each set of parts that are on
