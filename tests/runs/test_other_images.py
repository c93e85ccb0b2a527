"""The settings shipped for MNIST on other images of the same form: brighter ones must not make training fall over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dataset_files import Bytes, write_idx
from sklearn.datasets import load_digits

from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.streams.datasets.mnist import FILES

REPEATED = 8  # times each image, so that a task has enough steps to learn or to fall over


@pytest.fixture(scope="module")
def inverted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark digits on white, 28 x 28, in the files of MNIST."""
    found = load_digits()
    large = np.kron(found.images / 16 * 255, np.ones((3, 3))).astype(np.uint8)
    x: Bytes = 255 - np.pad(large, ((0, 0), (2, 2), (2, 2)))
    y = found.target.astype(np.uint8)
    train, test = np.tile(np.arange(0, 1500), REPEATED), np.arange(1500, len(y))
    root = tmp_path_factory.mktemp("inverted")
    write_idx(root / "MNIST" / "raw", dict(zip(FILES, (x[train], y[train], x[test], y[test]), strict=True)))
    return root


@pytest.mark.parametrize(
    ("stream", "method", "settings"),
    [
        ("perm-mnist", "derpp", {}),
        ("perm-mnist", "sncl", {"gates": "off"}),
        ("rot-mnist", "sncl", {}),
    ],
)
def test_every_task_is_learned(
    stream: str, method: str, settings: dict[str, str], inverted: Path, tmp_path: Path
) -> None:
    experiment = plan(stream, method, memory=200, tasks=2, settings=settings, device="cpu", threads=1)
    matrix = perform(experiment, tmp_path / "run", inverted).main.accuracy_matrix
    learned = [row[task] for task, row in enumerate(matrix)]
    assert min(value for value in learned if value is not None) > 50, learned
