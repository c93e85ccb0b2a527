"""CIFAR-10 from its binary and its Python version, and from damaged and hostile files."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_files import CIFAR_FILES, write_cifar

from sncl.errors import SnclError
from sncl.streams.datasets.sources import load


@pytest.mark.parametrize("protocol", [2, 4])
def test_both_versions_of_cifar_give_the_same_tensors(tmp_path: Path, protocol: int) -> None:
    binary, pickled = write_cifar(tmp_path, protocol)
    one, two = load("cifar10", binary.parent), load("cifar10", pickled.parent)
    assert one.train_x.shape == (20, 3, 32, 32)
    assert torch.equal(one.train_x, two.train_x)
    assert torch.equal(one.train_y, two.train_y)
    assert one.fingerprint() == two.fingerprint()
    record = (binary / "data_batch_2.bin").read_bytes()  # row 4 of all
    assert int(one.train_y[4]) == record[0]
    assert bytes(one.train_x[4].flatten().tolist()) == record[1:3073]
    test_record = (binary / "test_batch.bin").read_bytes()
    assert int(one.test_y[0]) == test_record[0]
    assert one.test_x[0, 2, 31, 31] == test_record[3072]


def test_old_names_of_numpy_modules_are_read(tmp_path: Path) -> None:
    """The official files say numpy.core, as numpy 1 did."""
    _, pickled = write_cifar(tmp_path)
    for name in CIFAR_FILES:
        data = (pickled / name).read_bytes()
        assert b"numpy._core" in data
        (pickled / name).write_bytes(data.replace(b"numpy._core", b"numpy.core"))
    assert load("cifar10", pickled.parent).train_x.shape == (20, 3, 32, 32)


class Attack:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    _, pickled = write_cifar(tmp_path)
    trace = tmp_path / "executed"
    attack = pickle.dumps({b"data": Attack(trace), b"labels": [0]})
    pickle.loads(attack)
    assert trace.exists()  # the attack works on an ordinary unpickler
    trace.rmdir()
    (pickled / "data_batch_3").write_bytes(attack)
    with pytest.raises(SnclError, match=r"data_batch_3 is not a pickled CIFAR-10 batch .*mkdir"):
        load("cifar10", pickled.parent)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "no 'data'"),
        ({b"data": np.zeros((2, 3072), np.int64), b"labels": [0, 1]}, "no 'data'"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "no list 'labels'"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 300]}, "0 to 300"),
    ],
)
def test_damaged_python_cifar(tmp_path: Path, batch: object, message: str) -> None:
    _, pickled = write_cifar(tmp_path)
    (pickled / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(SnclError, match=message) as caught:
        load("cifar10", pickled.parent)
    assert "test_batch" in str(caught.value)


def test_damaged_binary_cifar(tmp_path: Path) -> None:
    binary, _ = write_cifar(tmp_path)
    path = binary / "data_batch_1.bin"
    good = path.read_bytes()
    for bad, message in ((good[:-1], "whole number of records"), (b"", "whole number"), (b"\x0b" + good[1:], "labels")):
        path.write_bytes(bad)
        with pytest.raises(SnclError, match=message):
            load("cifar10", binary.parent)
