"""Raw samples become, bit for bit, those that the stream has; also by what was written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from used_runs import float_images, gappy_flowers, save_split
from user_files import save_arrays, save_digits, save_small_images

from sncl import stream
from sncl.errors import SnclError
from sncl.streams.preprocessing import Preprocessing, describe_transform, made_transform
from sncl.streams.stream import Stream
from sncl.streams.transforms import CropFlip, Identity, Transform, Unit
from sncl.tables import columns_of, read_columns


def written_down(found: Stream) -> Preprocessing:
    assert found.preprocessing is not None
    return Preprocessing.from_json(json.loads(json.dumps(found.preprocessing.to_json())))


def rows_of(x: torch.Tensor) -> set[bytes]:
    return {each.numpy().tobytes() for each in x}


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Categories, gaps and a column of 10^9 and a bit; the target is passed over, and the order of columns free."""
    folder = save_split(tmp_path / "table", gappy_flowers())
    found = stream(f"table:{folder}", augment="none")
    preprocessing = written_down(found)
    columns = read_columns(folder / "test.csv")
    assert torch.equal(preprocessing.inputs(columns), found.test_x)
    assert torch.equal(preprocessing.inputs(dict(reversed(columns.items()))), found.test_x)
    del columns["kind"]
    assert torch.equal(preprocessing.inputs(columns), found.test_x)
    records = [
        dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    assert torch.equal(preprocessing.inputs(records), found.test_x)
    assert columns_of(records).keys() == columns.keys()
    assert found.test_x[:, 4].std() > 0.5  # 10^9 keeps its digits
    del columns["soil"]
    with pytest.raises(SnclError, match="no column 'soil'"):
        preprocessing.inputs(columns)


@pytest.mark.parametrize("form", ["numbers", "floats", "bytes"])
def test_rows_of_arrays(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"{form}.npz"
    if form == "numbers":
        save_arrays(path)
    elif form == "bytes":
        save_digits(path)
    else:
        np.savez(path, **float_images())
    found = stream(str(path))
    with np.load(path) as arrays:
        raw = arrays["x"] if "x" in arrays else np.concatenate([arrays["x_train"], arrays["x_test"]])
    made = rows_of(written_down(found).inputs(raw))
    assert rows_of(found.x) | rows_of(found.test_x) == made


def test_images_as_files_and_as_arrays(tmp_path: Path) -> None:
    pictures = save_small_images(tmp_path / "pictures", mode="RGB")
    found = stream(f"folder:{pictures}")
    files = sorted(pictures.rglob("*.png"))
    for preprocessing in (found.preprocessing, written_down(found)):
        assert preprocessing is not None
        x = preprocessing.inputs(files)
        assert rows_of(x) == rows_of(found.x) | rows_of(found.test_x)
        assert torch.equal(preprocessing.inputs(x.permute(0, 2, 3, 1).numpy()), x)  # channels last
    other = save_small_images(tmp_path / "other", ("ape",), each=1) / "ape" / "0.png"
    assert written_down(found).inputs([other]).shape == (1, 3, 5, 6)  # grey becomes RGB, as in a mixed folder


def test_images_are_resized_only_where_the_run_did(tmp_path: Path) -> None:
    from user_files import save_image

    pictures = save_small_images(tmp_path / "pictures")
    large = save_image(tmp_path / "large.png", (40, 20))
    resized = written_down(stream(f"folder:{pictures}", size=4))
    assert resized.inputs([large]).shape == (1, 1, 4, 4)
    with pytest.raises(SnclError, match=r"large\.png is an image of 40 x 20 pixels, and the run learned from 6 x 5"):
        written_down(stream(f"folder:{pictures}")).inputs([large])
    (tmp_path / "no.png").write_bytes(b"no image")
    with pytest.raises(SnclError, match="no image that can be used"):
        resized.inputs([tmp_path / "no.png"])


def test_a_benchmark_takes_images_as_they_are() -> None:
    found = stream("seq-digits")
    preprocessing = written_down(found)
    assert (preprocessing.form, preprocessing.class_names) == ("benchmark", tuple("0123456789"))
    assert preprocessing.groups == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    x = found.test(0)[0]
    assert torch.equal(preprocessing.inputs(x.numpy()), x)
    assert torch.equal(preprocessing.inputs(x[:, 0].tolist()), x)
    with pytest.raises(SnclError, match="whole numbers from 0 to 255, not from floats"):
        preprocessing.inputs(x.numpy() / 255)
    with pytest.raises(SnclError, match=r"shape \[1, 8, 8\] in this model, and here it has \[1, 4, 8\]"):
        preprocessing.inputs(x.numpy()[:, :, :4])
    assert preprocessing.labels([3, 1]).tolist() == preprocessing.labels(["3", "1"]).tolist() == [3, 1]
    with pytest.raises(SnclError, match="no class '12' in this model"):
        preprocessing.labels([12])


@pytest.mark.parametrize("transform", [Identity(), Unit(0.1, 0.3), CropFlip(4, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))])
def test_transforms_as_plain_data(transform: Transform) -> None:
    assert made_transform(json.loads(json.dumps(describe_transform(transform)))) == transform
