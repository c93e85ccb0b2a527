"""sncl: neural networks that learn from a stream without forgetting.

>>> import torch
>>> from sncl import Learner
>>> net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
>>> x, y = torch.rand(32, 20), torch.randint(0, 10, (32,))
>>> learner = Learner(net, "sncl", memory=500)
>>> losses = learner.learn(x, y)
>>> labels = learner.predict(x)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sncl.errors import SnclError
    from sncl.estimator.classifier import ContinualClassifier, SNCLClassifier
    from sncl.interactive.experiments import run
    from sncl.interactive.results import Results, results
    from sncl.memory.memory import Memory
    from sncl.methods.own import add_method
    from sncl.networks.gating.attach import attach_gates
    from sncl.networks.pruning.prune import prune
    from sncl.runs.models import load
    from sncl.streams.build import build as stream
    from sncl.training.follow import follow
    from sncl.training.items import Item, Late
    from sncl.training.learner import Learner
    from sncl.training.snapshot import Snapshot

__version__ = "0.2.0"
__all__ = [
    "ContinualClassifier",
    "Item",
    "Late",
    "Learner",
    "Memory",
    "Results",
    "SNCLClassifier",
    "Snapshot",
    "SnclError",
    "add_method",
    "attach_gates",
    "follow",
    "load",
    "prune",
    "results",
    "run",
    "stream",
]

# Loaded at first use, so that `import sncl` is light.
_PUBLIC = {
    "ContinualClassifier": ("sncl.estimator.classifier", "ContinualClassifier"),
    "Item": ("sncl.training.items", "Item"),
    "Late": ("sncl.training.items", "Late"),
    "Learner": ("sncl.training.learner", "Learner"),
    "Memory": ("sncl.memory.memory", "Memory"),
    "Results": ("sncl.interactive.results", "Results"),
    "SNCLClassifier": ("sncl.estimator.classifier", "SNCLClassifier"),
    "SnclError": ("sncl.errors", "SnclError"),
    "Snapshot": ("sncl.training.snapshot", "Snapshot"),
    "add_method": ("sncl.methods.own", "add_method"),
    "attach_gates": ("sncl.networks.gating.attach", "attach_gates"),
    "follow": ("sncl.training.follow", "follow"),
    "load": ("sncl.runs.models", "load"),
    "prune": ("sncl.networks.pruning.prune", "prune"),
    "results": ("sncl.interactive.results", "results"),
    "run": ("sncl.interactive.experiments", "run"),
    "stream": ("sncl.streams.build", "build"),
}
_NEEDED_HERE = {"TYPE_CHECKING", "Any", "annotations", "import_module", "_NEEDED_HERE", "_PUBLIC"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sncl' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _NEEDED_HERE)
