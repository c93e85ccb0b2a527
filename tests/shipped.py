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

from sncl.methods.table import METHODS, make
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.settings import Settings, table
from sncl.streams.benchmarks import STREAMS
from sncl.training.learner import Learner

SCALED: dict[str, Any] = {"lr": 0.02, "replay": 8, "memory": 20}
IMAGE = (3, 8, 8)

UNLISTED: dict[str, Settings] = {"sncl with a reserve": {"reserve": 0.3}}  # kinds of gates that no row has


class Shipped(NamedTuple):
    """A method, all of its settings, the other arguments of its learner, and whether it needs the ResNet."""

    method: str
    settings: Settings
    options: dict[str, Any]
    resnet: bool = False

    def form(self) -> tuple[Any, ...]:
        """Which parts are on: texts as they are, numbers by their sign."""
        chosen = sorted((self.settings | self.options).items())
        signs = ((name, value if isinstance(value, str) else (value > 0) - (value < 0)) for name, value in chosen)
        return (self.method, *signs)

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


def shipped(method: str, stream: str, row: Settings) -> Shipped:
    """A row of the table. A text may name layers, so such a row gets the kind of network its stream has."""
    settings = METHODS[method].settings | {key: row[key] for key in row if key in METHODS[method].settings}
    known = signature(Learner).parameters
    options = {key: row[key] for key in row if key in known and key not in settings and key not in SCALED}
    has_text = any(isinstance(value, str) for value in row.values())
    return Shipped(method, settings, options, has_text and stream in STREAMS and STREAMS[stream].network != "mlp")


def every_row() -> dict[str, Shipped]:
    """The distinct rows of the table by method, stream and memory; a method without a row has its usual settings."""
    found = {
        f"{method} {stream} {memory}": shipped(method, stream, row)
        for stream, methods in table().items()
        for method, memories in methods.items()
        for memory, row in memories.items()
    }
    found |= {name: Shipped(name.split()[0], METHODS["sncl"].settings | extra, {}) for name, extra in UNLISTED.items()}
    found |= {method: Shipped(method, dict(entry.settings), {}) for method, entry in METHODS.items()}
    return distinct(found, lambda each: (each.method, str(each.settings), str(each.options), each.resnet))


def distinct(found: dict[str, Shipped], by: Any) -> dict[str, Shipped]:
    """The first of those that are the same ``by`` something."""
    firsts: dict[Any, str] = {}
    for name, each in found.items():
        firsts.setdefault(by(each), name)
    return {name: found[name] for name in firsts.values()}


ROWS = every_row()
FORMS = distinct(ROWS, Shipped.form)  # one row for each set of parts that are on
