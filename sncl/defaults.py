"""The settings each method runs with, by stream and memory: published values for the baselines, ours for SNCL.

The baselines' values are those the authors of DER tuned and published with their code in 2020, for the protocol in
``docs/faithfulness.md``; ``logits`` and ``labels`` are the weights they call alpha and beta. SNCL's were chosen on a
validation split of the training data (``results/core.md`` says how). The digits streams are ours.
"""

from __future__ import annotations

import math

from sncl.methods.table import Value

Settings = dict[str, Value]


def _digits(alpha: float, beta: float, gamma: float) -> dict[str, dict[int, Settings]]:
    """A digits stream, with SNCL's weights; everything else is the same for all methods and streams."""
    common: Settings = {"lr": 0.1, "replay": 32}
    pull: Settings = {"eta": 1e-4, "release": 0.2}
    return {
        "sgd": {0: {"lr": 0.1}},
        "er": {0: common},
        "der": {0: common | {"logits": 0.5}},
        "derpp": {0: common | {"logits": 0.5, "labels": 0.5}},
        "sncl": {0: common | pull | {"alpha": alpha, "beta": beta, "gamma": gamma}},
    }


_CIFAR: Settings = {"batch_size": 32, "replay": 32, "lr": 0.03}
_STAGES: Settings = {"features": "layer1,layer2,layer3,layer4"}
_GENERAL: Settings = {"batch_size": 16, "lr": 0.1, "alpha": 1.0, "eta": 1e-4, "release": 0.2}
_RELEASED: Settings = {"lr": 0.2, "alpha": 1.0, "eta": 1e-3, "release": 0.03}
_MNIST: Settings = {"batch_size": 128, "replay": 128}

#: stream -> method -> memory -> settings; 0 stands for any memory
DEFAULTS: dict[str, dict[str, dict[int, Settings]]] = {
    "seq-cifar10": {
        "sgd": {0: {"batch_size": 32, "lr": 0.1}},
        "er": {0: _CIFAR | {"lr": 0.1}},
        "der": {0: _CIFAR | {"logits": 0.3}},
        "derpp": {
            200: _CIFAR | {"logits": 0.1, "labels": 0.5},
            500: _CIFAR | {"logits": 0.2, "labels": 0.5},
            5120: _CIFAR | {"logits": 0.1, "labels": 1.0},
        },
        "sncl": {
            200: _CIFAR | _STAGES | {"alpha": 0.5, "beta": 0.1, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
            500: _CIFAR | _STAGES | {"alpha": 0.5, "beta": 0.2, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
            5120: _CIFAR | _STAGES | {"alpha": 1.0, "beta": 0.1, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
        },
    },
    "seq-tinyimagenet": {
        "sgd": {0: {"batch_size": 32, "lr": 0.03}},
        "er": {200: _CIFAR | {"lr": 0.1}, 500: _CIFAR, 5120: _CIFAR | {"lr": 0.1}},
        "der": {0: _CIFAR | {"logits": 0.1}},
        "derpp": {
            200: _CIFAR | {"logits": 0.1, "labels": 1.0},
            500: _CIFAR | {"logits": 0.2, "labels": 0.5},
            5120: _CIFAR | {"logits": 0.1, "labels": 0.5},
        },
        "sncl": {
            200: _CIFAR | _STAGES | {"alpha": 1.0, "beta": 0.1, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
            500: _CIFAR | _STAGES | {"alpha": 0.5, "beta": 0.2, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
            5120: _CIFAR | _STAGES | {"alpha": 0.5, "beta": 0.1, "gamma": 0.5, "eta": 1e-4, "release": 0.1},
        },
    },
    "perm-mnist": {
        "sgd": {0: {"batch_size": 128, "lr": 0.2}},
        "er": {0: _MNIST | {"lr": 0.2}},
        "der": {
            200: _MNIST | {"lr": 0.2, "logits": 1.0},
            500: _MNIST | {"lr": 0.2, "logits": 1.0},
            5120: _MNIST | {"lr": 0.2, "logits": 0.5},
        },
        "derpp": {
            200: _MNIST | {"lr": 0.1, "logits": 1.0, "labels": 1.0},
            500: _MNIST | {"lr": 0.2, "logits": 1.0, "labels": 0.5},
            5120: _MNIST | {"lr": 0.2, "logits": 0.5, "labels": 1.0},
        },
        "sncl": {
            200: _MNIST | _RELEASED | {"beta": 2.0, "gamma": 8.0},
            500: _MNIST | _RELEASED | {"beta": 2.0, "gamma": 8.0},
            5120: _MNIST | _RELEASED | {"beta": 1.0, "gamma": 3.0},
        },
    },
    "rot-mnist": {
        "sgd": {0: {"batch_size": 128, "lr": 0.2}},
        "er": {0: _MNIST | {"lr": 0.2}},
        "der": {200: _MNIST | {"lr": 0.2, "logits": 1.0}, 500: _MNIST | {"lr": 0.2, "logits": 0.5}},
        "derpp": {
            200: _MNIST | {"lr": 0.1, "logits": 1.0, "labels": 0.5},
            500: _MNIST | {"lr": 0.2, "logits": 0.5, "labels": 1.0},
            5120: _MNIST | {"lr": 0.2, "logits": 0.5, "labels": 0.5},
        },
        "sncl": {0: _MNIST | _RELEASED | {"beta": 1.0, "gamma": 3.0}},
    },
    "mnist-360": {
        "sgd": {0: {"batch_size": 4, "lr": 0.1}},
        "er": {
            200: {"batch_size": 1, "replay": 16, "lr": 0.2},
            500: {"batch_size": 1, "replay": 16, "lr": 0.2},
            1000: {"batch_size": 4, "replay": 16, "lr": 0.2},
        },
        "der": {
            200: {"batch_size": 16, "replay": 64, "lr": 0.1, "logits": 0.5},
            500: {"batch_size": 16, "replay": 16, "lr": 0.2, "logits": 0.5},
            1000: {"batch_size": 8, "replay": 16, "lr": 0.1, "logits": 0.5},
        },
        "derpp": {
            200: {"batch_size": 16, "replay": 16, "lr": 0.2, "logits": 0.5, "labels": 1.0},
            500: {"batch_size": 16, "replay": 16, "lr": 0.2, "logits": 0.5, "labels": 1.0},
            1000: {"batch_size": 16, "replay": 128, "lr": 0.2, "logits": 0.2, "labels": 1.0},
        },
        "sncl": {
            200: _GENERAL | {"replay": 64, "beta": 0.5, "gamma": 0.5},
            500: _GENERAL | {"replay": 16, "beta": 1.0, "gamma": 2.0},
            1000: _GENERAL | {"replay": 128, "beta": 1.0, "gamma": 0.5},
        },
    },
    "seq-mnist": {
        "sgd": {0: {"batch_size": 10, "lr": 0.03}},
        "er": {
            200: {"batch_size": 10, "replay": 10, "lr": 0.01},
            500: {"batch_size": 10, "replay": 10, "lr": 0.1},
        },
        "der": {
            200: {"batch_size": 10, "replay": 10, "lr": 0.03, "logits": 0.2},
            500: {"batch_size": 10, "replay": 128, "lr": 0.03, "logits": 1.0},
            5120: {"batch_size": 10, "replay": 128, "lr": 0.1, "logits": 0.5},
        },
        "derpp": {
            200: {"batch_size": 10, "replay": 128, "lr": 0.03, "logits": 0.2, "labels": 1.0},
            500: {"batch_size": 10, "replay": 10, "lr": 0.03, "logits": 1.0, "labels": 0.5},
            5120: {"batch_size": 10, "replay": 64, "lr": 0.1, "logits": 0.2, "labels": 0.5},
        },
        "sncl": {0: _GENERAL | {"batch_size": 10, "replay": 64, "lr": 0.03, "beta": 0.2, "gamma": 1.0}},
    },
    "seq-digits": _digits(alpha=0.5, beta=1.0, gamma=0.3),
    "perm-digits": _digits(alpha=1.0, beta=1.0, gamma=1.0),
    "rot-digits": _digits(alpha=0.5, beta=0.5, gamma=1.0),
    "digits-360": _digits(alpha=1.0, beta=1.0, gamma=0.3),
}


def defaults(stream: str, method: str, memory: int) -> Settings:
    """The settings that differ from the method's own for this stream; those of the nearest memory in the table."""
    row = DEFAULTS[stream].get("sgd" if method == "joint" else method, {})
    if not row:
        return {}
    return row[min(row, key=lambda listed: abs(math.log(max(memory, 1) / max(listed, 1))))]
