"""A stream over a table: rows are encoded in the order in which they are learned, and nothing looks ahead."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import user_files as files
from mixed_tables import KINDS, LABELS, fruit, save_fruit
from plain_encoding import PlainEncoder

import sncl
from sncl.streams.stream import Stream
from sncl.tables import columns_of


def raw(stream: Stream) -> torch.Tensor:
    """Training rows before they were standardised."""
    assert stream.preprocessing is not None and stream.preprocessing.scale is not None
    return stream.preprocessing.scale.inverse(stream.x)


def learned_rows(rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The rows that are not held out, in file order; their weights tell them apart."""
    loaded = files.read_data(path, ignore=["size", "ripe", "picked", "colour", "row"])
    kept = set(loaded.dataset.train_x.flatten().tolist())
    return [row for row in rows if row["weight"] in kept]


def test_rows_are_encoded_task_by_task(tmp_path: Path) -> None:
    rows = fruit()
    path = save_fruit(tmp_path / "fruit.csv", rows)
    stream = sncl.stream(str(path), split="4x1")
    assert stream.encoder is not None and stream.encoder.columns == {"row": "ignored", **KINDS}
    train = learned_rows(rows, path)
    tasks = [[place for place, row in enumerate(train) if row["kind"] == label] for label in LABELS]
    plain = PlainEncoder(KINDS, [train[place] for place in tasks[0]])
    expected: dict[int, list[float]] = {}
    for task in tasks:
        taught = [train[place] for place in task]
        plain.update(taught)
        expected |= dict(zip(task, plain.encode(taught), strict=True))
    found = raw(stream)
    np.testing.assert_allclose(found, [expected[place] for place in range(len(train))], rtol=1e-5, atol=1e-4)
    colours = [name for name in stream.encoder.names if name.startswith("colour =")]
    assert set(colours[:2]) == {"colour = red", "colour = green"}  # the apples', which come first
    np.testing.assert_allclose(stream.encoder.encode(columns_of(train)), plain.encode(train), rtol=1e-12, atol=1e-12)


def test_what_comes_later_changes_nothing_that_came_before(tmp_path: Path) -> None:
    rows = fruit()
    first = sncl.stream(str(save_fruit(tmp_path / "a.csv", rows)), split="4x1")
    for row in rows:
        if row["kind"] == "plum":
            row["colour"], row["size"] = "octarine", None
    other = sncl.stream(str(save_fruit(tmp_path / "b.csv", rows)), split="4x1")
    for task in range(3):
        assert first.x[first.phases[task].rows].equal(other.x[other.phases[task].rows])
    assert not first.x[first.phases[3].rows].equal(other.x[other.phases[3].rows])


def test_rows_held_out_for_validation_teach_nothing(tmp_path: Path) -> None:
    rows = fruit()
    stream = sncl.stream(str(save_fruit(tmp_path / "a.csv", rows)), validation=0.2, cut="none", numbers=["weight"])
    assert stream.encoder is not None
    (state,) = [each for each in stream.encoder.to_json()["columns"] if each["name"] == "weight"]
    taught = raw(stream)[stream.phases[0].rows, stream.encoder.names.index("weight")]
    assert state["count"] == len(taught) < len(stream.x)
    assert state["mean"] == pytest.approx(float(taught.mean()), rel=1e-5)


def test_a_table_of_numbers_keeps_its_bits(tmp_path: Path) -> None:
    """The numbers are those that were read before there was an encoder."""
    rows = [[*row[:4], row[5], row[6]] for row in files.flowers()]
    path = files.save_table(tmp_path / "n.csv", rows, [*files.HEADER[:4], "year", "kind"])
    loaded = files.read_data(path)
    assert loaded.user_data.fingerprint == "19596764c07a7cf5b4f12a8e36b101d33e1fc3b2bca45af351bf49725024d626"
    streams = (sncl.stream(str(path), seed=1), sncl.stream(str(path), seed=1, cut="none", validation=0.2))
    digests = [hashlib.sha256(each.x.numpy().tobytes() + each.test_x.numpy().tobytes()).hexdigest() for each in streams]
    assert digests == [
        "77f0a4e93c8d31d6df3905ba25ff44c58083e3f8f152230d485cfb248f89891c",
        "63aac50b3cf514539db14749532937fe76a5b29628c5b3282eac985b084dab3f",
    ]
    assert streams[0].encoder is not None and streams[0].encoder.whole
    identity = loaded.user_data.deciding()
    assert not {"ignore", "categories", "numbers", "path"} & identity.keys()  # those of earlier runs have none


def test_named_columns_are_part_of_what_a_run_is(tmp_path: Path) -> None:
    path = files.save_table(tmp_path / "flowers.csv")
    told = files.read_data(path, ignore=["sepal width"], categories=["year"], numbers=["petal width"]).user_data
    identity = json.loads(json.dumps(told.deciding()))
    assert (identity["ignore"], identity["categories"], identity["numbers"]) == (
        ["sepal width"],
        ["year"],
        ["petal width"],
    )
    again = type(told)(**identity, path=told.path)
    assert again == told and again.deciding() == identity
    assert told.fingerprint != files.read_data(path).user_data.fingerprint
    stream = sncl.stream(str(path), ignore=["sepal width"], categories=["year"])
    assert stream.shape == (3 + 16 + 16,)
