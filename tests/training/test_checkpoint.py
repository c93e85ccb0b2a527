"""Checkpoint files: what lies in them, and that a reader finds a whole one or an error, never half of one."""

import json
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from sncl.errors import SnclError
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint, read_json, write_atomically, write_checkpoint, write_json

DESCRIPTION = {"steps": 3, "place": [0, 1, 2], "scores": {"class_il": [[0.1, None], [33.333333333333336, 7.0]]}}


def tensors() -> Fields:
    return {
        "network/weight": torch.tensor([[0.1, -0.0], [torch.inf, 1e-45]]),
        "memory/rows/x": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
        "memory/rows/features/layer": torch.tensor([[1.5, -2.0]], dtype=torch.float16),
        "half": torch.tensor([3.0], dtype=torch.bfloat16),
        "memory/seen": torch.tensor(2**62),
        "random/view": torch.Generator().manual_seed(5).get_state(),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
    }


def same(one: Fields, other: Fields) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file", tensors(), DESCRIPTION)
    found, description = read_checkpoint(tmp_path / "file")
    assert same(found, tensors())
    assert found["network/weight"][0, 1].signbit()
    assert description == DESCRIPTION
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_views_and_shared_tensors_can_be_stored(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3).requires_grad_()
    given = {"turned": whole.T, "part": whole[:, 1], "whole": whole, "again": whole}
    write_checkpoint(tmp_path / "file", given, {})
    found, _ = read_checkpoint(tmp_path / "file")
    assert same(found, {name: value.detach() for name, value in given.items()})


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file", tensors(), DESCRIPTION)
    with safe_open(tmp_path / "file", framework="np") as file:
        assert json.loads(file.metadata()["sncl"]) == DESCRIPTION
        assert file.get_tensor("memory/rows/x").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_file_is_a_json_header_and_raw_numbers_and_nothing_else(tmp_path: Path) -> None:
    """Read without any library, so there is no room for a pickle."""
    write_checkpoint(tmp_path / "file", tensors(), DESCRIPTION)
    content = (tmp_path / "file").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    assert json.loads(header.pop("__metadata__")["sncl"]) == DESCRIPTION
    covered = 0
    for name, tensor in tensors().items():
        start, end = header.pop(name)["data_offsets"]
        assert data[start:end] == tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        covered += end - start
    assert header == {}
    assert covered == len(data)


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checkpoint(path, {"a": torch.arange(8.0), "b": torch.tensor(1)}, {"steps": 1})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(SnclError, match="damaged"):
            read_checkpoint(path)


def test_a_single_wrong_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checkpoint(path, {"network/a": torch.arange(8.0), "random/b": torch.tensor(1)}, {"steps": 1})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(SnclError, match="damaged"):
            read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x04\x95garbage", b"\xff" * 200, b"PK\x03\x04" + bytes(100)])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SnclError, match="damaged"):
        read_checkpoint(tmp_path / "file")


def test_a_file_of_someone_else_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "file", metadata={"format": "pt"})
    with pytest.raises(SnclError, match="no sncl checkpoint"):
        read_checkpoint(tmp_path / "file")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SnclError, match=r"there is no checkpoint .*nothing"):
        read_checkpoint(tmp_path / "nothing")
    with pytest.raises(SnclError, match=str(tmp_path)):
        read_checkpoint(tmp_path)


def test_a_reader_beside_a_writer_always_finds_a_whole_file(tmp_path: Path) -> None:
    path, done = tmp_path / "file", threading.Event()
    write_checkpoint(path, {"a": torch.zeros(200_000)}, {"number": 0})

    def write() -> None:
        try:
            for number in range(1, 60):
                content = {"a": torch.full((200_000 + 1000 * number,), float(number))}
                write_checkpoint(path, content, {"number": number})
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        found, description = read_checkpoint(path)
        number = description["number"]
        assert found["a"].shape == (200_000 + 1000 * number,)
        assert bool((found["a"] == number).all())
        seen.add(number)
    writer.join()
    assert len(seen) > 5
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write_json(tmp_path / "file", {"old": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(SnclError, match=r"cannot write .*file: No space left on device"):
        write_json(tmp_path / "file", {"new": 2})
    monkeypatch.undo()
    assert read_json(tmp_path / "file") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def note(*arguments: object) -> None:
            calls.append(name)
            call(*arguments)

        return note

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    write_atomically(tmp_path / "file", b"content")
    assert calls == ["fsync", "replace", "fsync"]  # the last one is of the folder, and keeps the name
    assert (tmp_path / "file").read_bytes() == b"content"


def test_where_nothing_can_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SnclError, match=r"cannot write .*folder"):
        write_json(tmp_path / "folder", {})
    with pytest.raises(SnclError, match="No such file"):
        write_checkpoint(tmp_path / "missing" / "file", {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_json_keeps_every_number_and_refuses_what_is_none(tmp_path: Path) -> None:
    value = {"third": 1 / 3, "small": 5e-324, "none": None, "text": "±"}
    write_json(tmp_path / "file", value)
    assert read_json(tmp_path / "file") == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", {"nan": float("nan")})
    assert read_json(tmp_path / "file") == value


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe", b"nonsense", b"[" * 200_000])
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(SnclError, match=r"file\.json is damaged"):
        read_json(tmp_path / "file.json")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer
    for read in (read_json, read_checkpoint):
        with pytest.raises(SnclError, match="pipe is no file"):
            read(tmp_path / "pipe")
