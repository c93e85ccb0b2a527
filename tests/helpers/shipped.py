"""Every method as it is shipped: each row of the table of settings, on networks small enough for tests.

What is scaled down is said here and nowhere else: all learners have the same step size, replayed batch and memory,
batches have the size that a test gives them, and the networks are an MLP and a ResNet-18 of few channels.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

import torch
from blobs import CLASSES, FEATURES, batches
from torch import Tensor, nn

from sncl.methods.table import METHODS, Settings, make
from sncl.networks.gating.mask import Mask
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.settings import defaults_table, known_settings, make_mask
from sncl.streams.benchmarks import STREAMS
from sncl.training.learner import Learner

SCALED: dict[str, Any] = {"lr": 0.02, "replay": 8, "memory": 20}
IMAGE = (3, 8, 8)

UNLISTED = ("kl", "natural", "target")  # kinds of gates, of which a row may have none


class Shipped(NamedTuple):
    """A method, all of its settings, the other arguments of its learner, and whether it needs the ResNet."""

    method: str
    settings: Settings
    options: dict[str, Any]
    resnet: bool = False

    def form(self) -> tuple[Any, ...]:
        """Which parts are on: texts as they are, numbers by their sign."""
        chosen = sorted((self.settings | self.options).items())
        return (self.method, *((name, sign(value)) for name, value in chosen))

    def learner(self, net: nn.Module | None = None, **more: Any) -> Learner:
        """A learner on the given network, or on the small one of this row."""
        torch.manual_seed(0)
        if net is None:
            net = ResNet18(CLASSES, width=4) if self.resnet else MLP(FEATURES, CLASSES, width=16)
        return Learner(net, make(self.method, self.settings), device="cpu", **(self.options | SCALED | more))

    def batches(self, count: int, rows: int = 8, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
        """The two tasks of blobs, as inputs of this row's network."""
        shape = IMAGE if self.resnet else (FEATURES,)
        made = batches(count, rows, seed, features=torch.Size(shape).numel())
        return [(x.reshape(-1, *shape) / 4, y) for x, y in made]  # numbers about as large as those of images


def sign(value: Any) -> Any:
    """Whether something is on: a text as it is, a number by its sign, a mask by those of its numbers."""
    if isinstance(value, Mask):
        return sign(value.threshold), sign(value.compensate)
    return value if isinstance(value, str) else (value > 0) - (value < 0)


def shipped(method: str, stream: str, row: Settings) -> Shipped:
    """A row of the table. A text may name layers, so such a row gets the kind of network its stream has."""
    every = known_settings(method, row, {})
    settings = {key: every[key] for key in METHODS[method].settings_with(every)}
    known = signature(Learner).parameters
    options = {key: row[key] for key in row if key in known and key not in settings and key not in SCALED}
    options |= {"mask": make_mask(every)} if "threshold" in every else {}
    has_text = any(isinstance(value, str) for value in row.values())
    return Shipped(method, settings, options, has_text and stream in STREAMS and STREAMS[stream].network != "mlp")


def every_row() -> dict[str, Shipped]:
    """The distinct rows of the table by method, stream and memory; a method without a row has its usual settings."""
    found = {
        f"{method} {stream} {memory}": shipped(method, stream, row)
        for stream, methods in defaults_table().items()
        for method, memories in methods.items()
        for memory, row in memories.items()
    }
    found |= {
        f"sncl {gates}": Shipped("sncl", METHODS["sncl"].settings_with({"gates": gates}), {}) for gates in UNLISTED
    }
    found |= {method: Shipped(method, entry.settings_with({}), {}) for method, entry in METHODS.items()}
    return distinct(found, lambda each: (each.method, str(each.settings), str(each.options), each.resnet))


def distinct(found: dict[str, Shipped], by: Any) -> dict[str, Shipped]:
    """The first of those that are the same ``by`` something."""
    firsts: dict[Any, str] = {}
    for name, each in found.items():
        firsts.setdefault(by(each), name)
    return {name: found[name] for name in firsts.values()}


ROWS = every_row()
FORMS = distinct(ROWS, Shipped.form)  # one row for each set of parts that are on
