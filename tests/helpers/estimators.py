"""Small estimators and data for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sncl import ContinualClassifier, SNCLClassifier

Estimator = ContinualClassifier | SNCLClassifier
SMALL: dict[str, Any] = {"memory": 30, "replay": 8, "batch_size": 8, "epochs": 3, "hidden": 16, "random_state": 0}


def blobs(rows: int = 120, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(seed)
    centres = 4 * numbers.normal(size=(classes, 6))
    y = numbers.integers(classes, size=rows)
    return centres[y] + numbers.normal(size=(rows, 6)), y


def models() -> list[Estimator]:
    averaged = ContinualClassifier("derpp", ema=0.9, **SMALL)
    return [SNCLClassifier(**SMALL), averaged, ContinualClassifier("sgd", **SMALL)]
