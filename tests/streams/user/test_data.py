"""What is made of a person's own files: which rows, in which order, under which names, and nothing of the future."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import user_files as files
from PIL import Image

import sncl
from sncl.errors import SnclError
from sncl.streams.user import folder as folders
from sncl.streams.user.data import Read, ask, read
from sncl.streams.user.listing import in_order


def opened(stream: str | Path, **options: Any) -> Read:
    asked = ask(str(stream), **options)
    assert asked is not None
    return read(asked)


# --- labels ------------------------------------------------------------------------------------------------------


def test_names_are_sorted_as_a_person_would() -> None:
    assert in_order(["10", "9", "-1", "9"]) == ["-1", "9", "10"]
    assert in_order(["a10", "a9", "B"]) == ["B", "a9", "a10"]


def test_labels_keep_their_names(tmp_path: Path) -> None:
    source = opened(files.save_arrays(tmp_path / "mine.npz")).source
    assert source.names == ("3", "7")  # neither 0 and 1 nor without a gap
    assert source.classes == 2
    words = np.array(["yak", "ape"] * 20)
    named = opened(files.save_arrays(tmp_path / "words.npz", lambda arrays: arrays.update(y=words))).source
    assert named.names == ("ape", "yak")
    assert named.train_y.tolist()[:4] == [int(word == "yak") for word in words][:4]


def test_names_of_arrays_are_found(tmp_path: Path) -> None:
    plain = opened(files.save_arrays(tmp_path / "plain.npz"))

    def renamed(arrays: dict[str, Any]) -> None:
        arrays |= {"Data": arrays.pop("x"), "LABELS": arrays.pop("y"), "comment": np.array("hello")}

    other = opened(files.save_arrays(tmp_path / "other.npz", renamed))
    assert other.user_data.fingerprint == plain.user_data.fingerprint
    assert any("x is 'Data', y is 'LABELS'; not used: comment" in note for note in other.notes)


# --- a test set where there is none ------------------------------------------------------------------------------


def test_a_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    y = np.array([0] * 50 + [1] * 10 + [2] * 2)
    x = np.arange(62.0)[:, None]
    path = files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(x=x, y=y))
    source = opened(path).source
    assert source.test_y.bincount().tolist() == [10, 2, 1]
    rows, tested = source.train_x.flatten().tolist(), source.test_x.flatten().tolist()
    assert sorted(rows + tested) == list(range(62))
    assert rows == sorted(rows) and tested == sorted(tested)  # in file order
    seeds = [sncl.stream(str(path), seed=seed, split="1x3").test_y for seed in (0, 1)]
    assert seeds[0].equal(seeds[1])  # every seed is tested on the same rows


def test_every_class_of_every_domain_is_held_out(tmp_path: Path) -> None:
    domain = np.repeat(["b", "a"], 20)
    source = opened(files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(domain=domain))).source
    assert source.domain_names == ("b", "a")  # as they come
    assert source.test_domain is not None
    assert (2 * source.test_domain + source.test_y).bincount().tolist() == [2, 2, 2, 2]


# --- numbers -----------------------------------------------------------------------------------------------------


def test_standardised_by_the_first_task_alone(tmp_path: Path) -> None:
    """What comes later moves nothing that came before."""
    numbers = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = numbers.normal(5, 3, size=(80, 3))
    x[:, 2] = numbers.integers(0, 2, 80)
    changed = x.copy()
    changed[y >= 2, :2] *= 1e6
    streams = []
    for name, values in (("one.npz", x), ("other.npz", changed)):
        arrays = {"x": values, "y": y, "x_test": values[:8], "y_test": y[:8]}
        np.savez(tmp_path / name, **arrays)
        streams.append(sncl.stream(str(tmp_path / name)))
    first, second = (stream.batch(0, torch.arange(40))[0] for stream in streams)
    assert first.dtype == torch.float32
    assert first.equal(second)
    early = x[y < 2]
    expected = (early[:, :2] - early[:, :2].mean(0)) / early[:, :2].std(0)
    assert torch.allclose(first[:, :2], torch.tensor(expected, dtype=torch.float32), atol=1e-6)
    assert first[:, 2].tolist() == early[:, 2].tolist()  # truth values stay
    assert streams[1].batch(1, torch.arange(40))[0].abs().max() == 10  # and what is far off is moved near
    tested = streams[0].test(0)[0][:, :2]
    assert torch.allclose(
        tested, torch.tensor((x[:8][y[:8] < 2][:, :2] - early[:, :2].mean(0)) / early[:, :2].std(0)).float()
    )


def test_without_tasks_the_first_tenth_counts(tmp_path: Path) -> None:
    x = np.arange(100.0)[:, None]
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(100) % 2, x_test=x[:2], y_test=np.arange(2))
    stream = sncl.stream(str(tmp_path / "mine.npz"), cut="none", batch_size=32)
    shown = torch.cat([stream.batch(0, positions)[0] for positions in stream.positions(0, 0)])
    assert shown.flatten().tolist() == pytest.approx(((x[:, 0] - 4.5) / x[:10].std()).clip(-10, 10).tolist())
    assert [len(positions) for positions in stream.positions(0, 0)] == [32, 32, 32, 4]
    assert (stream.scenario, stream.boundaries, stream.tasks) == ("general", False, 1)


def test_images_of_floats_are_standardised_by_channel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal((1.0, 50.0, 0.0), (1.0, 9.0, 0.1), size=(40, 4, 4, 3))
    np.savez(tmp_path / "mine.npz", x=x.astype(np.float32), y=np.arange(40) % 2, domain=np.repeat([0, 1], 20))
    stream = sncl.stream(str(tmp_path / "mine.npz"), split="1x2", cut="classes")
    shown = stream.batch(0, torch.arange(32))[0]
    assert stream.shape == (3, 4, 4)
    assert torch.allclose(shown.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(shown.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_where_channels_stand_does_not_matter(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 5, 4), dtype=np.uint8)
    kinds = {"first": x, "last": x.transpose(0, 2, 3, 1), "wide": x.astype(np.int64)}
    prints = set()
    for name, values in kinds.items():
        path = files.save_arrays(tmp_path / f"{name}.npz", lambda arrays, values=values: arrays.update(x=values))
        found = opened(path)
        assert (found.user_data.network, found.user_data.pixels, found.source.train_x.dtype) == (
            "resnet18",
            True,
            torch.uint8,
        )
        prints.add(found.user_data.fingerprint)
    assert len(prints) == 1


# --- tables ------------------------------------------------------------------------------------------------------


def test_columns_of_a_table(tmp_path: Path) -> None:
    rows = [[1.5, "b", "x"], [2.5, "a", "y"], [3.5, "b", "x"], [4.5, "a", "y"]]
    for name, content in (("train.csv", rows), ("test.csv", [[5, "c", "y"], [6, "a", "x"]])):
        files.save_table(tmp_path / "mine" / name, content, ["size", "colour", "label"])
    source = opened(f"table:{tmp_path / 'mine'}").source
    assert source.train_x.tolist() == [[1.5, 0, 1], [2.5, 1, 0], [3.5, 0, 1], [4.5, 1, 0]]
    assert source.test_x.tolist() == [[5, 0, 0], [6, 1, 0]]  # a colour that no training row has is none of them
    assert (source.train_y.tolist(), source.test_y.tolist()) == ([0, 1, 0, 1], [1, 0])


def test_numbers_in_a_test_table_where_texts_were_learned(tmp_path: Path) -> None:
    for name, content in (("train.csv", [["a", "x"], ["b", "y"]]), ("test.csv", [[1, "x"], [2, "y"]])):
        files.save_table(tmp_path / "mine" / name, content, ["code", "label"])
    assert opened(f"table:{tmp_path / 'mine'}").source.test_x.tolist() == [[0, 0], [0, 0]]


def test_other_separators_and_a_byte_order_mark(tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "comma.csv")
    other = tmp_path / "semicolon.csv"
    other.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b",", b" ; "))
    assert opened(other).user_data.fingerprint == opened(table).user_data.fingerprint


def test_parquet_is_the_same_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = files.flowers()
    columns = dict(zip(files.HEADER, map(list, zip(*rows, strict=True)), strict=True))
    columns["soil"] = pyarrow.array(columns["soil"]).dictionary_encode()
    parquet.write_table(pyarrow.table(columns), tmp_path / "flowers.parquet")
    there = opened(tmp_path / "flowers.parquet", domain="year")
    assert (
        there.user_data.fingerprint
        == opened(files.save_table(tmp_path / "flowers.csv"), domain="year").user_data.fingerprint
    )
    columns["sepal width"][7] = None
    parquet.write_table(pyarrow.table(columns), tmp_path / "flowers.parquet")
    with pytest.raises(SnclError, match="row 8 has no value in the column 'sepal width'"):
        opened(tmp_path / "flowers.parquet")


# --- images ------------------------------------------------------------------------------------------------------


def test_folders_of_domains(tmp_path: Path) -> None:
    for domain in ("2", "10"):
        files.save_small_images(tmp_path / "zoo" / domain)
    found = opened(f"folder:{tmp_path / 'zoo'}")
    assert (found.user_data.cut, found.source.domain_names, found.source.names) == (
        "domain",
        ("2", "10"),
        ("ape", "bee"),
    )
    stream = sncl.stream(f"folder:{tmp_path / 'zoo'}")
    assert (stream.scenario, stream.tasks, stream.test_tasks) == ("domain-il", 2, 2)
    assert [len(phase.rows) for phase in stream.phases] == [8, 8]
    validated = sncl.stream(f"folder:{tmp_path / 'zoo'}", validation=0.25)
    assert sum(len(phase.rows) for phase in (*validated.phases, *validated.test_phases)) == 16


def test_grey_and_coloured_and_turned(tmp_path: Path) -> None:
    place = files.save_small_images(tmp_path / "zoo" / "train").parent
    files.save_small_images(place / "val")
    assert opened(f"folder:{place}").source.train_x.shape == (10, 1, 5, 6)
    turned = Image.Exif()
    turned[0x0112] = 6  # stands on its side
    Image.new("RGB", (5, 6), (9, 8, 7)).save(place / "train" / "ape" / "9.jpg", exif=turned, quality=100)
    source = opened(f"folder:{place}").source
    assert source.train_x.shape == (11, 3, 5, 6)
    assert source.train_x[0].unique().tolist() == [0]  # 0.png: three equal channels
    assert source.train_x[-1, :, 0, 0].tolist() == pytest.approx([9, 8, 7], abs=1)


def test_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(["ape", "bee", "ape", "bee", "ape", "bee", "ape", "bee", "ape", "bee", "bee"]):
        files.save_image(tmp_path / "zoo" / "train" / name / f"frame{number}.png", colour=number)
    files.save_small_images(tmp_path / "zoo" / "test")
    source = opened(f"folder:{tmp_path / 'zoo'}").source
    assert source.train_x[:, 0, 0, 0].tolist() == list(range(11))


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")
    told: list[tuple[int, int]] = []
    asked = ask(f"folder:{zoo}")
    assert asked is not None
    first = read(asked, lambda done, total: told.append((done, total)))
    assert told == [(10, 10)]
    monkeypatch.setattr(folders, "_decode", None)  # would fail if it were called
    assert read(asked).user_data == first.user_data
    monkeypatch.undo()
    image = zoo / "ape" / "0.png"
    files.save_image(image, colour=99)
    os.utime(image, ns=(1, 1))
    again = read(asked)
    assert again.user_data.fingerprint != first.user_data.fingerprint
    assert len(list((zoo / folders.CACHE).glob("*.npy"))) == 1  # the old one is gone


def test_a_broken_decoding_leaves_nothing(tmp_path: Path) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    asked = ask(f"folder:{zoo}")
    assert asked is not None
    with pytest.raises(KeyboardInterrupt):
        read(asked, stop)
    left = zoo / folders.CACHE / "own-size-0123.npy.99.part"  # as a process that is killed leaves one
    assert list(left.parent.glob("*.npy*")) == []
    left.touch()
    assert read(asked).user_data.rows == 8
    assert not left.exists()


def test_images_in_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")
    monkeypatch.setenv("SNCL_DATA", str(tmp_path / "cache"))
    (zoo / folders.CACHE).write_text("a file where a folder should be")  # as good as a read-only disk, also for root
    assert opened(f"folder:{zoo}").user_data.rows == 8
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 1


# --- streams from Python -----------------------------------------------------------------------------------------


def test_a_stream_from_python(tmp_path: Path) -> None:
    stream = sncl.stream(str(files.save_table(tmp_path / "flowers.csv")), target="kind", split="3x1", seed=2)
    assert (stream.tasks, stream.classes, stream.names) == (3, 3, ("setosa", "versicolor", "virginica"))
    x, y = stream.batch(1, stream.positions(1, 0)[0])
    assert (x.shape, set(y.tolist())) == ((32, 8), {1})
    joint = stream.joint()
    assert (joint.tasks, len(joint.phases[0].rows)) == (1, 120)
    with pytest.raises(SnclError, match=r"wants 8 classes, but table:flowers.csv has 3: for 2 classes a task say 2x2"):
        sncl.stream(str(tmp_path / "flowers.csv"), split="4x2")


def test_a_task_needs_rows(tmp_path: Path) -> None:
    y = np.array([0] * 10 + [1] * 2)
    path = files.save_arrays(tmp_path / "mine.npz", lambda arrays: arrays.update(x=np.zeros((12, 2)), y=y))
    with pytest.raises(SnclError, match=r"task 2 of npz:mine.npz has 1 rows to learn from; 2 are needed"):
        sncl.stream(str(path))
