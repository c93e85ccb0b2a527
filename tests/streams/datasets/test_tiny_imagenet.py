"""Tiny ImageNet from a few JPEG files: decoded once, by one of many runs, and again when the result is damaged."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_files import write_tiny
from numpy.typing import NDArray
from PIL import Image

from sncl.errors import SnclError
from sncl.streams.datasets import tiny_imagenet
from sncl.streams.datasets.sources import load


def test_tiny_imagenet(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    calls: list[tuple[int, int]] = []
    dataset = load("tiny-imagenet", tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert dataset.mapped
    assert dataset.train_x.shape == (7, 3, 64, 64)
    assert dataset.train_y.tolist() == [0, 0, 0, 1, 1, 1, 1]  # wnids.txt, not the alphabet, numbers the classes
    centre = dataset.train_x[:, :, 32, 32].int()
    assert (centre[0] - torch.tensor([0, 0, 250])).abs().max() <= 4
    assert (centre[:3, 1] - torch.tensor([0, 20, 100])).abs().max() <= 4  # by number: 0, 2, 10
    assert (centre[6] - 77).abs().max() <= 1
    assert dataset.test_y.tolist() == [1, 0]
    assert (dataset.test_x[0, :, 5, 5].int() - torch.tensor([199, 99, 9])).abs().max() <= 4
    assert calls == [(7, 7), (2, 2)]

    for path in folder.rglob("*.JPEG"):  # a second call decodes nothing
        path.write_bytes(b"")
    again = load("tiny-imagenet", tmp_path)
    assert again.fingerprint() == dataset.fingerprint()
    again.train_x[0] = 0  # copy on write: the cache is safe from what is done to the tensor
    assert load("tiny-imagenet", tmp_path).fingerprint() == dataset.fingerprint()


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "gone"])
def test_broken_cache_is_rebuilt(tmp_path: Path, split: str, damage: str) -> None:
    folder = write_tiny(tmp_path)
    good = load("tiny-imagenet", tmp_path).fingerprint()
    (path,) = (folder / tiny_imagenet.CACHE).glob(f"{split}-*.npy")
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
    dataset = load("tiny-imagenet", tmp_path)
    assert dataset.train_y.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert dataset.train_x[0, 0, 32, 32] > 240  # n01 is red
    assert dataset.train_x[6, 2, 32, 32] > 240
    assert len(list((folder / tiny_imagenet.CACHE).glob("*.npy"))) == 2  # the old one is gone


def test_interrupted_decoding_leaves_nothing_and_is_done_again(tmp_path: Path) -> None:
    cache = write_tiny(tmp_path) / tiny_imagenet.CACHE

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load("tiny-imagenet", tmp_path, progress=stop)
    assert [path.name for path in cache.iterdir()] == ["train.lock"]
    assert len(load("tiny-imagenet", tmp_path).train_x) == 7
    assert len(list(cache.glob("*.npy"))) == 2


def test_runs_of_one_process_decode_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs on one GPU are threads of one process: the first decodes, the others wait for its result."""
    write_tiny(tmp_path)
    decoded: list[str] = []
    pixels = tiny_imagenet._pixels

    def slow(path: Path) -> NDArray[np.uint8]:
        decoded.append(path.name)
        time.sleep(0.05)
        return pixels(path)

    monkeypatch.setattr(tiny_imagenet, "_pixels", slow)
    start = threading.Barrier(4)

    def run() -> str:
        start.wait()
        return load("tiny-imagenet", tmp_path).fingerprint()

    with ThreadPoolExecutor(4) as pool:
        prints = [future.result() for future in [pool.submit(run) for _ in range(4)]]
    assert len(set(prints)) == 1
    assert len(decoded) == len(set(decoded)) == 9


def test_undecodable_image_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    path = folder / "train" / "n02" / "images" / "n02_2.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SnclError, match=r"n02_2\.JPEG is not an image"):
        load("tiny-imagenet", tmp_path)
    Image.new("RGB", (32, 48)).save(path)
    with pytest.raises(SnclError, match="32 x 48 pixels instead of 64 x 64"):
        load("tiny-imagenet", tmp_path)
    path.unlink()
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\n")
    with pytest.raises(SnclError, match=r"val_annotations\.txt does not give"):
        load("tiny-imagenet", tmp_path)
