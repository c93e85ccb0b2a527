"""The digits of scikit-learn and their fixed split."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sncl.errors import SnclError
from sncl.streams.datasets.digits import files, find, numbers
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


def test_the_file_is_read_as_scikit_learn_reads_it() -> None:
    found = load_digits()
    table = numbers(files(find(Path("nowhere")) or Path())[0])
    assert np.array_equal(table[:, :-1], found.data)
    assert np.array_equal(table[:, -1], found.target)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"1,2,3\n", "holds 1 rows of 3 numbers, not 1797 of 65"),
        (b"one,two\n", "is no table of numbers"),
        (b"1,2\n3\n", "is no table of numbers"),
        (b"\xff", "is no table of numbers"),
        (b"", "holds 0 rows"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(SnclError, match=f"digits.csv.gz {says}"):
        numbers(path)
