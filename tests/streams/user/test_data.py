"""The user's data as a data set: names of classes, samples held out to test on, and streams from Python."""

from pathlib import Path

import numpy as np
import pytest
import user_files as files

import sncl
from sncl.errors import SnclError
from sncl.streams.user.listing import sorted_names


def test_names_are_sorted_as_a_person_would() -> None:
    assert sorted_names(["10", "9", "-1", "9"]) == ["-1", "9", "10"]
    assert sorted_names(["a10", "a9", "B"]) == ["B", "a9", "a10"]


def test_labels_keep_their_names(tmp_path: Path) -> None:
    dataset = files.read_data(files.save_arrays(tmp_path / "mine.npz")).dataset
    assert dataset.names == ("3", "7")  # neither 0 and 1 nor without a gap
    assert dataset.classes == 2
    words = np.array(["yak", "ape"] * 20)
    named = files.read_data(files.save_arrays(tmp_path / "words.npz", lambda arrays: arrays.update(y=words))).dataset
    assert named.names == ("ape", "yak")
    assert named.train_y.tolist()[:4] == [int(word == "yak") for word in words][:4]


def test_a_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    y = np.array([0] * 50 + [1] * 10 + [2] * 2)
    x = np.arange(62.0)[:, None]
    path = files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(x=x, y=y))
    dataset = files.read_data(path).dataset
    assert dataset.test_y.bincount().tolist() == [10, 2, 1]
    rows, tested = dataset.train_x.flatten().tolist(), dataset.test_x.flatten().tolist()
    assert sorted(rows + tested) == list(range(62))
    assert rows == sorted(rows) and tested == sorted(tested)  # in file order
    seeds = [sncl.stream(str(path), seed=seed, split="1x3").test_y for seed in (0, 1)]
    assert seeds[0].equal(seeds[1])  # every seed is tested on the same rows


def test_every_class_of_every_domain_is_held_out(tmp_path: Path) -> None:
    domain = np.repeat(["b", "a"], 20)
    dataset = files.read_data(
        files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(domain=domain))
    ).dataset
    assert dataset.domain_names == ("b", "a")  # as they come
    assert dataset.test_domain is not None
    assert (2 * dataset.test_domain + dataset.test_y).bincount().tolist() == [2, 2, 2, 2]


def test_a_stream_from_python(tmp_path: Path) -> None:
    stream = sncl.stream(str(files.save_table(tmp_path / "flowers.csv")), target="kind", split="3x1", seed=2)
    assert (stream.tasks, stream.classes, stream.names) == (3, 3, ("setosa", "versicolor", "virginica"))
    x, y = stream.batch(1, stream.positions(1, 0)[0])
    assert (x.shape, set(y.tolist())) == ((32, 5 + 16), {1})  # five numbers, and places for the soils
    joint = stream.joint()
    assert (joint.tasks, len(joint.phases[0].rows)) == (1, 120)
    with pytest.raises(SnclError, match=r"wants 8 classes, but table:flowers.csv has 3: for 2 classes a task say 2x2"):
        sncl.stream(str(tmp_path / "flowers.csv"), split="4x2")


def test_a_task_needs_rows(tmp_path: Path) -> None:
    y = np.array([0] * 10 + [1] * 2)
    path = files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(x=np.zeros((12, 2)), y=y))
    with pytest.raises(SnclError, match=r"task 2 of npz:mine.npz has 1 rows to learn from; 2 are needed"):
        sncl.stream(str(path))
