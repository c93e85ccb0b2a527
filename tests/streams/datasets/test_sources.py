"""Reading data sets from files written here, byte by byte, as their authors publish them."""

import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.datasets import tiny_imagenet
from sncl.streams.datasets.sources import Source, data_root, inventory, load

RANDOM = np.random.default_rng(0)
Bytes = NDArray[np.uint8]


def idx(values: Bytes) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_mnist(folder: Path, zipped: bool = False) -> dict[str, Bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": RANDOM.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.array([0, 1, 2, 3, 4, 5, 9], dtype=np.uint8),
        "t10k-images-idx3-ubyte": RANDOM.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([3, 2, 1], dtype=np.uint8),
    }
    for name, values in arrays.items():
        data = idx(values)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(data) if zipped else data)
    return arrays


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("place", ["MNIST/raw", "mnist", "MNIST", "."])
def test_mnist(tmp_path: Path, place: str, zipped: bool) -> None:
    arrays = write_mnist(tmp_path / place, zipped)
    source = load("mnist", tmp_path)
    assert source.train_x.shape == (7, 1, 28, 28)
    assert source.train_x.dtype == torch.uint8
    assert np.array_equal(source.train_x[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert source.train_y.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert np.array_equal(source.test_x[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert source.test_y.tolist() == [3, 2, 1]
    assert source.test_y.dtype == torch.int64
    assert source.classes == 10


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


CIFAR_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def write_cifar(root: Path, protocol: int = 2) -> tuple[Path, Path]:
    """The same images as binary and as Python version, each under a root of its own."""
    binary, pickled = root / "a" / "cifar-10-batches-bin", root / "b" / "cifar-10-batches-py"
    for folder in (binary, pickled):
        folder.mkdir(parents=True)
    for name in CIFAR_FILES:
        pixels = RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8)
        labels = RANDOM.integers(0, 10, 4, dtype=np.uint8)
        (binary / f"{name}.bin").write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
        batch = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"x"}
        (pickled / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return binary, pickled


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


def test_digits_split() -> None:
    source = load("digits", Path("nowhere"))
    assert source.train_x.shape == (1437, 1, 8, 8)
    assert source.test_x.shape == (360, 1, 8, 8)
    assert int(source.train_x.max()) == 255
    from sklearn.datasets import load_digits

    found = load_digits()
    assert source.test_x[0, 0].tolist() == [[round(v * 255 / 16) for v in row] for row in found.images[0].tolist()]
    counts = torch.bincount(source.train_y) + torch.bincount(source.test_y)
    assert counts.tolist() == np.bincount(found.target).tolist()
    assert torch.all((torch.bincount(source.test_y) - counts / 5).abs() < 1)
    every = torch.cat([source.train_x, source.test_x]).sum(dim=0)
    assert every[0].tolist() == np.rint(found.images * 255 / 16).sum(axis=0).tolist()  # no image twice, none lost


# --- Tiny ImageNet ---------------------------------------------------------------------------------------------------


def write_tiny(root: Path) -> Path:
    """Two classes of the 200, in an order that is not the alphabet's; files saved as JPEG, one of them grey."""
    from PIL import Image

    folder = root / "tiny-imagenet-200"
    val = folder / "val" / "images"
    val.mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    for wnid, colour in (("n01", (250, 0, 0)), ("n02", (0, 0, 250))):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for number in (10, 2, 0):
            Image.new("RGB", (64, 64), (colour[0], number * 10, colour[2])).save(
                images / f"{wnid}_{number}.JPEG", quality=95
            )
    Image.new("L", (64, 64), 77).save(folder / "train" / "n01" / "images" / "n01_11.JPEG", quality=95)
    Image.new("RGB", (64, 64), (9, 99, 199)).save(val / "val_0.JPEG", quality=95)
    Image.new("RGB", (64, 64), (199, 99, 9)).save(val / "val_1.JPEG", quality=95)
    (folder / "val" / "val_annotations.txt").write_text("val_1.JPEG\tn01\t0\t0\t1\t1\nval_0.JPEG\tn02\t0\t0\t1\t1\n")
    return folder


def test_tiny_imagenet(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    calls: list[tuple[int, int]] = []
    source = load("tiny-imagenet", tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert source.mapped
    assert source.train_x.shape == (7, 3, 64, 64)
    assert source.train_y.tolist() == [0, 0, 0, 1, 1, 1, 1]  # wnids.txt, not the alphabet, numbers the classes
    centre = source.train_x[:, :, 32, 32].int()
    assert (centre[0] - torch.tensor([0, 0, 250])).abs().max() <= 4
    assert (centre[:3, 1] - torch.tensor([0, 20, 100])).abs().max() <= 4  # by number: 0, 2, 10
    assert (centre[6] - 77).abs().max() <= 1
    assert source.test_y.tolist() == [1, 0]
    assert (source.test_x[0, :, 5, 5].int() - torch.tensor([199, 99, 9])).abs().max() <= 4
    assert calls == [(7, 7), (2, 2)]

    for path in folder.rglob("*.JPEG"):  # a second call decodes nothing
        path.write_bytes(b"")
    again = load("tiny-imagenet", tmp_path)
    assert again.fingerprint() == source.fingerprint()
    again.train_x[0] = 0  # copy on write: the cache is safe from what is done to the tensor
    assert load("tiny-imagenet", tmp_path).fingerprint() == source.fingerprint()


@pytest.mark.parametrize("file", ["train-images.npy", "train-labels.npy", "val-images.npy"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "gone"])
def test_broken_cache_is_rebuilt(tmp_path: Path, file: str, damage: str) -> None:
    folder = write_tiny(tmp_path)
    good = load("tiny-imagenet", tmp_path).fingerprint()
    path = folder / tiny_imagenet.CACHE / file
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"cut": data[:-5], "garbage": b"garbage" * 100, "empty": b""}[damage])
    assert load("tiny-imagenet", tmp_path).fingerprint() == good
    assert path.read_bytes() == data


def test_cache_of_another_order_of_classes_is_rebuilt(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    load("tiny-imagenet", tmp_path)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    source = load("tiny-imagenet", tmp_path)
    assert source.train_y.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert source.train_x[0, 0, 32, 32] > 240  # n01 is red
    assert source.train_x[6, 2, 32, 32] > 240


def test_interrupted_decoding_leaves_nothing_and_is_done_again(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load("tiny-imagenet", tmp_path, progress=stop)
    assert list((folder / tiny_imagenet.CACHE).iterdir()) == []
    assert len(load("tiny-imagenet", tmp_path).train_x) == 7
    assert len(list((folder / tiny_imagenet.CACHE).iterdir())) == 4


def test_undecodable_image_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    path = folder / "train" / "n02" / "images" / "n02_2.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SnclError, match=r"n02_2\.JPEG is not an image"):
        load("tiny-imagenet", tmp_path)
    from PIL import Image

    Image.new("RGB", (32, 48)).save(path)
    with pytest.raises(SnclError, match="32 x 48 pixels instead of 64 x 64"):
        load("tiny-imagenet", tmp_path)
    path.unlink()
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\n")
    with pytest.raises(SnclError, match=r"val_annotations\.txt does not give"):
        load("tiny-imagenet", tmp_path)


# --- finding -------------------------------------------------------------------------------------------------------


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    for name, file in (("mnist", "train-images"), ("cifar10", "data_batch_1.bin"), ("tiny-imagenet", "wnids.txt")):
        with pytest.raises(SnclError) as caught:
            load(name, tmp_path)
        message = str(caught.value)
        for part in (file, str(tmp_path), f"sncl data fetch {name}", "SNCL_DATA", "--data"):
            assert part in message
        assert "\n" not in message


def test_unknown_data_set_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(SnclError, match="mnist, cifar10, tiny-imagenet, digits"):
        load("imagenet", tmp_path)


def test_inventory(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    found = {item.name: item for item in inventory(tmp_path / "a")}
    assert {name: item.present for name, item in found.items()} == {
        "mnist": False,
        "cifar10": True,
        "tiny-imagenet": False,
        "digits": True,
    }
    assert found["cifar10"].path == str(tmp_path / "a" / "cifar-10-batches-bin")
    assert "train-images-idx3-ubyte" in found["mnist"].detail


def test_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNCL_DATA", str(tmp_path / "from-environment"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "from-environment"
    monkeypatch.delenv("SNCL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root().name == "sncl"


def test_fingerprint_sees_every_change() -> None:
    def source(**changed: torch.Tensor) -> Source:
        x, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
        return Source("s", **({"train_x": x, "train_y": y, "test_x": x, "test_y": y} | changed), classes=2)

    image = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    image[3, 0, 1, 1] = 1
    label = torch.tensor([0, 0, 0, 1])
    variants = [
        source(),
        source(train_x=image),
        source(test_x=image),
        source(train_y=label),
        source(test_y=label),
        source(test_x=torch.zeros(4, 1, 4, 1, dtype=torch.uint8)),
    ]
    assert len({variant.fingerprint() for variant in variants}) == len(variants)
    assert source().fingerprint() == variants[0].fingerprint()


@pytest.mark.slow
def test_real_files(real_data: Path) -> None:
    mnist = load("mnist", real_data)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(mnist.train_y).tolist() == counts
    assert mnist.train_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_x.shape == (10000, 1, 28, 28)
    assert mnist.train_x.float().mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    cifar = load("cifar10", real_data)
    assert torch.bincount(cifar.train_y).tolist() == [5000] * 10
    assert torch.bincount(cifar.test_y).tolist() == [1000] * 10
    mean = cifar.train_x.float().mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
