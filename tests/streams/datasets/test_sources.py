"""Data sets by name: where they are looked for, what is said where they are missing, and their fingerprints."""

from pathlib import Path

import pytest
import torch
from dataset_files import write_cifar

from sncl.errors import SnclError
from sncl.streams.datasets.sources import Dataset, data_root, inventory, load


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    for name, file in (("mnist", "train-images"), ("cifar10", "data_batch_1.bin"), ("tiny-imagenet", "wnids.txt")):
        with pytest.raises(SnclError) as caught:
            load(name, tmp_path)
        message = str(caught.value)
        for part in (file, str(tmp_path), f"sncl data fetch {name}", "SNCL_DATA", "`data`"):
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
    def dataset(**changed: torch.Tensor) -> Dataset:
        x, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
        return Dataset("s", **({"train_x": x, "train_y": y, "test_x": x, "test_y": y} | changed), classes=2)

    image = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    image[3, 0, 1, 1] = 1
    label = torch.tensor([0, 0, 0, 1])
    variants = [
        dataset(),
        dataset(train_x=image),
        dataset(test_x=image),
        dataset(train_y=label),
        dataset(test_y=label),
        dataset(test_x=torch.zeros(4, 1, 4, 1, dtype=torch.uint8)),
    ]
    assert len({variant.fingerprint() for variant in variants}) == len(variants)
    assert dataset().fingerprint() == variants[0].fingerprint()


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
