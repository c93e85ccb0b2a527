"""The user's images: which files, in which order, decoded once into one size."""

import os
from pathlib import Path

import pytest
import user_files as files
from PIL import Image

import sncl
from sncl.errors import SnclError
from sncl.streams.user import images


def test_folders_of_domains(tmp_path: Path) -> None:
    for domain in ("2", "10"):
        files.save_small_images(tmp_path / "zoo" / domain)
    found = files.read_data(f"folder:{tmp_path / 'zoo'}")
    assert (found.user_data.cut, found.dataset.domain_names, found.dataset.names) == (
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
    assert files.read_data(f"folder:{place}").dataset.train_x.shape == (10, 1, 5, 6)
    turned = Image.Exif()
    turned[0x0112] = 6  # stands on its side
    Image.new("RGB", (5, 6), (9, 8, 7)).save(place / "train" / "ape" / "9.jpg", exif=turned, quality=100)
    dataset = files.read_data(f"folder:{place}").dataset
    assert dataset.train_x.shape == (11, 3, 5, 6)
    assert dataset.train_x[0].unique().tolist() == [0]  # 0.png: three equal channels
    assert dataset.train_x[-1, :, 0, 0].tolist() == pytest.approx([9, 8, 7], abs=1)


def test_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(["ape", "bee", "ape", "bee", "ape", "bee", "ape", "bee", "ape", "bee", "bee"]):
        files.save_image(tmp_path / "zoo" / "train" / name / f"frame{number}.png", colour=number)
    files.save_small_images(tmp_path / "zoo" / "test")
    dataset = files.read_data(f"folder:{tmp_path / 'zoo'}").dataset
    assert dataset.train_x[:, 0, 0, 0].tolist() == list(range(11))


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")
    told: list[tuple[int, int]] = []
    first = files.read_data(f"folder:{zoo}", lambda done, total: told.append((done, total)))
    assert told == [(10, 10)]
    monkeypatch.setattr(images, "_pixels", None)  # would fail if it were called
    assert files.read_data(f"folder:{zoo}").user_data == first.user_data
    monkeypatch.undo()
    image = zoo / "ape" / "0.png"
    files.save_image(image, colour=99)
    os.utime(image, ns=(1, 1))
    again = files.read_data(f"folder:{zoo}")
    assert again.user_data.fingerprint != first.user_data.fingerprint
    assert len(list((zoo / images.CACHE).glob("*.npy"))) == 1  # the old one is gone


def test_an_interrupted_decoding_leaves_nothing(tmp_path: Path) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.read_data(f"folder:{zoo}", stop)
    assert [path.name for path in (zoo / images.CACHE).iterdir()] == ["original.lock"]
    assert files.read_data(f"folder:{zoo}").user_data.rows == 8


def test_images_in_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that share the place for such images do not remove each other's."""
    monkeypatch.setenv("SNCL_DATA", str(tmp_path / "cache"))
    for count, name in enumerate(("zoo", "farm"), start=1):
        folder = files.save_small_images(tmp_path / name)
        (folder / images.CACHE).write_text("a file where a folder should be")  # like a read-only disk, also for root
        assert files.read_data(f"folder:{folder}").user_data.rows == 8
        assert len(list((tmp_path / "cache").rglob("*.npy"))) == count


def test_large_images_need_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = tmp_path / "zoo"
    for number in range(20):
        files.save_image(zoo / ("ape", "bee")[number % 2] / f"{number}.png", (200, 200), number)
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 600_000)
    with pytest.raises(SnclError, match=r"20 images of 200 x 200 in .* would take .* give a smaller `size`"):
        files.read_data(f"folder:{zoo}")
    assert files.read_data(f"folder:{zoo}", size=8).dataset.train_x.shape == (16, 1, 8, 8)
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 100_000)
    with pytest.raises(SnclError, match=r"decoding \w+/\d+.png in .*, an image of 200 x 200 pixels, would take"):
        files.read_data(f"folder:{zoo}", size=9)


def test_few_large_images_are_decoded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")
    monkeypatch.setattr("sncl.streams.cache.BLOCK_BYTES", 3 * (6 * 5 * images.BYTES_A_PIXEL + 30))
    told: list[int] = []
    small = files.read_data(f"folder:{zoo}", lambda done, total: told.append(done))
    assert told == [3, 6, 9, 10]
    monkeypatch.undo()
    assert files.read_data(f"folder:{files.save_small_images(tmp_path / 'b')}").user_data.fingerprint == (
        small.user_data.fingerprint
    )


def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    zoo = files.save_small_images(tmp_path / "zoo")
    os.rename(zoo / "ape", os.fsencode(zoo) + b"/\xff\xfe")
    with pytest.raises(SnclError, match=r"a folder whose name is no UTF-8"):
        files.read_data(f"folder:{zoo}")


def test_a_folder_may_lie_below_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    above = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert files.read_data(f"folder:{files.save_small_images(above / 'zoo')}").user_data.rows == 8
