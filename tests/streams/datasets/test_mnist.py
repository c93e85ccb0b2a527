"""MNIST from plain and gzipped IDX files, and from damaged ones."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_files import idx, write_mnist

from sncl.errors import SnclError
from sncl.streams.datasets import images
from sncl.streams.datasets.sources import load


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("place", ["MNIST/raw", "mnist", "MNIST", "."])
def test_mnist(tmp_path: Path, place: str, zipped: bool) -> None:
    arrays = write_mnist(tmp_path / place, zipped)
    dataset = load("mnist", tmp_path)
    assert dataset.train_x.shape == (7, 1, 28, 28)
    assert dataset.train_x.dtype == torch.uint8
    assert np.array_equal(dataset.train_x[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert dataset.train_y.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert np.array_equal(dataset.test_x[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert dataset.test_y.tolist() == [3, 2, 1]
    assert dataset.test_y.dtype == torch.int64
    assert dataset.classes == 10


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train-images-idx3-ubyte", lambda data: data[:-1], "bytes of data where its header promises 5488"),
        ("train-images-idx3-ubyte", lambda data: data + b"x", "header promises"),
        ("t10k-images-idx3-ubyte", lambda data: b"\0\0\x08\x01" + data[4:], "not an IDX file"),
        ("t10k-labels-idx1-ubyte", lambda data: b"", "not an IDX file"),
        ("t10k-labels-idx1-ubyte", lambda data: idx(np.zeros(4, np.uint8)), "4 labels for 3 images"),
        ("train-labels-idx1-ubyte", lambda data: idx(np.full(7, 10, np.uint8)), "label 10"),
    ],
)
def test_damaged_mnist_names_the_file(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    write_mnist(tmp_path)
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SnclError, match=message) as caught:
        load("mnist", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("cut", [lambda data: data[:-9], lambda data: b"no gzip", lambda data: data[:20] + b"!" * 50])
def test_damaged_gzip_names_the_file(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    write_mnist(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(SnclError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        load("mnist", tmp_path)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path, zipped=True)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(10**6)))
    monkeypatch.setattr(images.contents, "__defaults__", (10**5,))
    with pytest.raises(SnclError, match=r"t10k-images-idx3-ubyte.gz has more than 100000 bytes"):
        load("mnist", tmp_path)
