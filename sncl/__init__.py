"""sncl: neural networks that learn from a stream without forgetting.

>>> from sncl import Learner
>>> learner = Learner(net, "sncl", memory=500)
>>> learner.learn(x, y)
>>> learner.predict(x)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sncl.errors import SnclError
    from sncl.memory.memory import Memory
    from sncl.networks.gates import attach_gates
    from sncl.streams.benchmarks import build as stream
    from sncl.training.follow import follow
    from sncl.training.learner import Learner

__version__ = "0.1.0"
__all__ = ["Learner", "Memory", "SnclError", "attach_gates", "follow", "stream"]

# Loaded at first use, so that `import sncl` is light.
_PUBLIC = {
    "Learner": ("sncl.training.learner", "Learner"),
    "Memory": ("sncl.memory.memory", "Memory"),
    "SnclError": ("sncl.errors", "SnclError"),
    "attach_gates": ("sncl.networks.gates", "attach_gates"),
    "follow": ("sncl.training.follow", "follow"),
    "stream": ("sncl.streams.benchmarks", "build"),
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sncl' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(import_module(module), attribute)
