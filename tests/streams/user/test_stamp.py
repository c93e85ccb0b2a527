"""The stamp of the user's files: another one whenever something that is read has changed, and none for young files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import user_files as files

from sncl.streams.user import stamp
from sncl.streams.user.spec import DataSpec, parse_spec
from sncl.streams.user.stamp import stamp_of_files


@pytest.fixture(autouse=True)
def young_files_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamp, "SETTLED", 0)


def spec_of(path: Path) -> DataSpec:
    found = parse_spec(str(path))
    assert found is not None
    return found


def rewritten(path: Path) -> None:
    """Another content of the same length, dated back."""
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path: Path) -> None:
    """Another file of the same name, length and times."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [rewritten, replaced, lambda path: path.write_bytes(path.read_bytes() + b"\n")])
@pytest.mark.parametrize("name", ["flowers.csv", "digits.npz", "zoo", "tables"])
def test_a_changed_file_changes_the_stamp(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    data = tmp_path / name
    if name == "zoo":
        file = sorted(files.save_small_images(data).rglob("*.png"))[0]
    elif name == "tables":
        data.mkdir()
        files.save_table(data / "train.csv")
        file = files.save_table(data / "test.csv")
    else:
        file = files.save_table(data) if name.endswith("csv") else files.save_digits(data)
    spec = spec_of(data)
    before = stamp_of_files(spec)
    assert before is not None and before == stamp_of_files(spec)
    change(file)
    assert stamp_of_files(spec) not in (before, None)


def test_files_and_folders_that_come_go_and_move_change_the_stamp(tmp_path: Path) -> None:
    folder = files.save_small_images(tmp_path / "zoo")
    spec, seen = spec_of(folder), set[str | None]()
    image = sorted(folder.rglob("*.png"))[0]
    moved = folder / "empty" / image.name
    for change in (list, moved.parent.mkdir, lambda: image.rename(moved), moved.unlink):
        change()
        stamped = stamp_of_files(spec)
        assert stamped is not None and stamped not in seen
        seen.add(stamped)


def test_hidden_files_are_not_read(tmp_path: Path) -> None:
    folder = files.save_small_images(tmp_path / "zoo")
    before = stamp_of_files(spec_of(folder))
    (folder / ".sncl-cache").mkdir()
    (folder / ".sncl-cache" / "original.npy").write_bytes(b"pixels")
    assert stamp_of_files(spec_of(folder)) == before


def test_folders_that_lead_back_to_themselves_end(tmp_path: Path) -> None:
    folder = files.save_small_images(tmp_path / "zoo")
    (folder / "again").symlink_to(folder)
    assert stamp_of_files(spec_of(folder)) is not None


def test_of_missing_and_young_files_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    spec = spec_of(table)
    monkeypatch.setattr(stamp, "SETTLED", 10**12)
    assert stamp_of_files(spec) is None
    monkeypatch.setattr(stamp, "SETTLED", 0)
    assert stamp_of_files(spec) is not None
    table.unlink()
    assert stamp_of_files(spec) is None
