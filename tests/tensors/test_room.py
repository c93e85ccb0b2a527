"""Available memory: of the machine, and of a container with less."""

from pathlib import Path

import pytest

from sncl.errors import SnclError
from sncl.tensors import room


def test_the_least_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:    700 kB\n")
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(room, "CGROUP", tmp_path)
    assert room.available_memory() == 700 * 1024
    for name, content in (
        ("max", "5000"),
        ("current", "3000"),
        ("stat", "anon 1000\ninactive_file 400\nactive_file 100"),
    ):
        (tmp_path / f"memory.{name}").write_text(content)
    assert room.available_memory() == 2500
    (tmp_path / "memory.max").write_text("max")
    assert room.available_memory() == 700 * 1024
    (tmp_path / "meminfo").unlink()
    assert (room.available_memory() or 0) > 700 * 1024  # all there is


def test_too_much_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: 2 * room.GIB)
    room.require_memory(2 * room.GIB, "this", "do that")
    with pytest.raises(SnclError, match=r"^this would take 3.0 GiB of memory, and 2.0 GiB are available; do that$"):
        room.require_memory(3 * room.GIB, "this", "do that")
    monkeypatch.setattr(room, "available_memory", lambda: None)
    room.require_memory(2**60, "this", "do that")
