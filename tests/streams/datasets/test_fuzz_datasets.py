"""Damaged files of the data sets are read or refused: IDX, plain and gzipped, both versions of CIFAR-10, the lists of
Tiny ImageNet, and archives."""

import shutil
import tarfile
from pathlib import Path
from typing import Literal

from dataset_files import write_cifar, write_mnist, write_tiny
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.streams.datasets.sources import load
from sncl.streams.datasets.unpack import unpack


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


@FUZZ
@given(st.data(), st.sampled_from(["wnids.txt", "val/val_annotations.txt", "train/n01/images/n01_2.JPEG"]))
def test_tiny_imagenet(tmp_path: Path, data: st.DataObject, name: str) -> None:
    whole, root = tmp_path / "whole", fresh(tmp_path)
    if not whole.exists():
        write_tiny(whole)
    shutil.copytree(whole, root)
    check("tiny-imagenet", root / "tiny-imagenet-200" / name, root, data)
    shutil.rmtree(root)


@FUZZ
@given(st.data(), st.sampled_from(["zip", "tar"]), st.booleans())
def test_archives(tmp_path: Path, data: st.DataObject, kind: Literal["zip", "tar"], packed: bool) -> None:
    source, folder = tmp_path / "source", fresh(tmp_path)
    if not source.exists():
        write_mnist(source / "data")
    folder.mkdir()
    archive = Path(shutil.make_archive(str(folder / "whole"), "zip" if kind == "zip" else "tar", source))
    if packed and kind == "tar":
        with tarfile.open(archive, "w:gz") as file:
            file.add(source / "data", "data")
    archive.write_bytes(data.draw(mutants([archive.read_bytes()])))
    read_or_refused(lambda: unpack(archive, kind, folder / "data"))
    left = {path.name for path in folder.iterdir()} - {archive.name}
    assert left <= {"data"}
    shutil.rmtree(folder)
