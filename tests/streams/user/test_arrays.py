"""The user's arrays: found under any usual name, with channels wherever they stand."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import user_files as files

from sncl.errors import SnclError


def test_names_of_arrays_are_found(tmp_path: Path) -> None:
    plain = files.read_data(files.save_arrays(tmp_path / "plain.npz"))

    def renamed(arrays: dict[str, Any]) -> None:
        arrays |= {"Data": arrays.pop("x"), "LABELS": arrays.pop("y"), "comment": np.array("hello")}

    other = files.read_data(files.save_arrays(tmp_path / "other.npz", renamed))
    assert other.user_data.fingerprint == plain.user_data.fingerprint
    assert any("x is 'Data', y is 'LABELS'; not used: comment" in note for note in other.notes)


def test_where_channels_stand_does_not_matter(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 5, 4), dtype=np.uint8)
    kinds = {"first": x, "last": x.transpose(0, 2, 3, 1), "wide": x.astype(np.int64)}
    prints = set()
    for name, values in kinds.items():
        path = files.save_arrays(tmp_path / f"{name}.npz", lambda arrays, values=values: arrays.update(x=values))
        found = files.read_data(path)
        assert (found.user_data.network, found.user_data.pixels, found.dataset.train_x.dtype) == (
            "resnet18",
            True,
            torch.uint8,
        )
        prints.add(found.user_data.fingerprint)
    assert len(prints) == 1


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


X, Y = npy(np.arange(40.0).reshape(20, 2)), npy(np.arange(20) % 2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:-8], "the array 'x' is cut short: it has 312 of 320 bytes"),
        (X[:60], "the array 'x' has a header that is cut short"),
        (X + b"more", "the array 'x' has more than the 320 bytes that its header promises"),
        (X.replace(b"(20, 2)", b"(20, 2 "), "the array 'x' has a damaged header"),
        (X.replace(b"'<f8'", b"'<q8'"), "the array 'x' has a damaged header"),
        (X.replace(b"(20, 2)", b"(-9, 2)"), "the array 'x' has a damaged header"),
        (npy(np.array([{}] * 2)), "the array 'x' holds Python objects"),
        (npy(np.zeros(2, "i4,f4")), "the array 'x' holds neither numbers nor texts"),
        (b"hello", "the array 'x' is no array"),
    ],
)
def test_a_damaged_array_is_named(tmp_path: Path, x: bytes, message: str) -> None:
    with pytest.raises(SnclError, match=message):
        files.read_data(npz(tmp_path / "mine.npz", x=x, y=Y))


def test_labels_that_are_no_characters(tmp_path: Path) -> None:
    wrong = npy(np.array(["a", "b"] * 10)).replace(b"b\0\0\0", b"\xff\xff\xff\xff")
    with pytest.raises(SnclError, match="no valid Unicode"):
        files.read_data(npz(tmp_path / "mine.npz", x=X, y=wrong))


def test_arrays_without_a_role_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they would not fit into memory, or are damaged."""
    path = npz(tmp_path / "mine.npz", x=X, y=Y, huge=npy(np.zeros(10**6)), damaged=X[:70])
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 10**6)
    found = files.read_data(path)
    assert any("not used: huge, damaged" in note for note in found.notes)


def test_arrays_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path / "mine.npz", x=npy(np.zeros((10**5, 10))), y=npy(np.arange(10**5) % 2))
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 10**6)
    with pytest.raises(
        SnclError, match=r"mine.npz: x, y would take 0.0 GiB of memory, and 0.0 GiB are available; leave"
    ):
        files.read_data(path)
    promised = X.replace(b"(20, 2), }         ", b"(2000000000, 2), } ")
    with pytest.raises(SnclError, match="cut short: it has 320 of 32000000000 bytes"):
        files.read_data(npz(tmp_path / "promised.npz", x=promised, y=Y))


def test_what_other_writers_and_layouts_hold(tmp_path: Path) -> None:
    x = np.arange(40.0).reshape(20, 2)
    old = X.replace(b"(20, 2), }  ", b"(20L, 2L), }")  # of Python 2
    prints = {
        files.read_data(npz(tmp_path / f"{number}.npz", x=content, y=Y)).user_data.fingerprint
        for number, content in enumerate((X, npy(np.asfortranarray(x)), npy(x.astype(">f8")), old))
    }
    assert len(prints) == 1
