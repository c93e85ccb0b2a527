"""Damaged files of the data sets are read or refused: IDX, plain and gzipped, and both versions of CIFAR-10."""

from pathlib import Path

from dataset_files import write_cifar, write_mnist
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.streams.datasets.sources import load


def check(name: str, path: Path, root: Path, data: st.DataObject) -> None:
    path.write_bytes(data.draw(mutants([path.read_bytes()])))
    dataset = read_or_refused(lambda: load(name, root))
    if dataset is not None:
        assert len(dataset.train_x) == len(dataset.train_y)
        assert 0 <= dataset.train_y.min() <= dataset.train_y.max() < 10


@FUZZ
@given(st.data(), st.sampled_from(["images-idx3", "labels-idx1"]), st.booleans())
def test_idx(tmp_path: Path, data: st.DataObject, kind: str, zipped: bool) -> None:
    root = fresh(tmp_path)
    write_mnist(root, zipped)
    check("mnist", root / f"train-{kind}-ubyte{'.gz' if zipped else ''}", root, data)


@FUZZ
@given(st.data())
def test_binary_cifar(tmp_path: Path, data: st.DataObject) -> None:
    binary, _ = write_cifar(fresh(tmp_path))
    check("cifar10", binary / "data_batch_2.bin", binary.parent, data)


@FUZZ
@given(st.data(), st.sampled_from([2, 4]))
def test_pickled_cifar(tmp_path: Path, data: st.DataObject, protocol: int) -> None:
    _, pickled = write_cifar(fresh(tmp_path), protocol)
    path = pickled / "data_batch_2"
    content = path.read_bytes()
    start = content.index(b"u1") - 200 if data.draw(st.booleans()) else len(content) - 200  # what is no pixel
    middle = data.draw(mutants([content[start : start + 400]]))
    path.write_bytes(content[:start] + middle + content[start + 400 :])
    dataset = read_or_refused(lambda: load("cifar10", pickled.parent))
    assert dataset is None or dataset.train_x.shape[1:] == (3, 32, 32)
