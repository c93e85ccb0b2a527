"""The digits of scikit-learn and their fixed split."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from sncl.streams.datasets.sources import load


def test_digits_split() -> None:
    dataset = load("digits", Path("nowhere"))
    assert dataset.train_x.shape == (1437, 1, 8, 8)
    assert dataset.test_x.shape == (360, 1, 8, 8)
    assert int(dataset.train_x.max()) == 255
    found = load_digits()
    assert dataset.test_x[0, 0].tolist() == [[round(v * 255 / 16) for v in row] for row in found.images[0].tolist()]
    counts = torch.bincount(dataset.train_y) + torch.bincount(dataset.test_y)
    assert counts.tolist() == np.bincount(found.target).tolist()
    assert torch.all((torch.bincount(dataset.test_y) - counts / 5).abs() < 1)
    every = torch.cat([dataset.train_x, dataset.test_x]).sum(dim=0)
    assert every[0].tolist() == np.rint(found.images * 255 / 16).sum(axis=0).tolist()  # no image twice, none lost
