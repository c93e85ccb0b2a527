"""Decoded images: one of many threads or processes decodes and all read the same; a killed one leaves nothing."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.cache import decode_once, in_blocks

Pixels = NDArray[np.uint8]
BLOCKS = np.random.default_rng(0).integers(0, 256, (6, 2, 1, 3, 4), dtype=np.uint8)  # six blocks of two images
IMAGES = BLOCKS.reshape(12, 1, 3, 4)

# A process that decodes the same images and prints how far it is; after four it waits for a file to appear.
DECODER = """
import sys, time
from pathlib import Path
import numpy as np
from sncl.streams.cache import decode_once

def decode():
    for number, block in enumerate(np.random.default_rng(0).integers(0, 256, (6, 2, 1, 3, 4), dtype=np.uint8)):
        while number == 2 and not Path(sys.argv[2]).exists():
            time.sleep(0.01)
        yield block

images = decode_once([Path(sys.argv[1])], "all", "key", 12, decode, lambda done, total: print(done, flush=True))
print("sum", images.sum())
"""


def decoder(folder: Path, gate: Path) -> "subprocess.Popen[str]":
    """The process, when it has decoded four images."""
    command = [sys.executable, "-c", DECODER, str(folder), str(gate)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["2\n", "4\n"]
    return process


def blocks() -> Iterator[Pixels]:
    yield from BLOCKS


def unexpected() -> Iterator[Pixels]:
    raise AssertionError("nothing is left to decode")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_decoded_at_the_first_call_only(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    first = decode_once([tmp_path / "cache"], "all", "key", 12, blocks, lambda *numbers: told.append(numbers))
    assert np.array_equal(first, IMAGES)
    assert told == [(2, 12), (4, 12), (6, 12), (8, 12), (10, 12), (12, 12)]
    assert names(tmp_path / "cache") == ["all-key.npy", "all.lock"]
    first[:] = 0  # a copy: the file keeps its content
    assert np.array_equal(decode_once([tmp_path / "cache"], "all", "key", 12, unexpected), IMAGES)


def test_another_key_replaces_what_is_out_of_date(tmp_path: Path) -> None:
    for group, key in (("all", "old"), ("other", "old"), ("all", "new")):
        decode_once([tmp_path], group, key, 12, blocks)
    assert names(tmp_path) == ["all-new.npy", "all.lock", "other-old.npy", "other.lock"]


def test_threads_decode_once(tmp_path: Path) -> None:
    decoded, start = [], threading.Barrier(4)

    def slow() -> Iterator[Pixels]:
        decoded.append(threading.get_ident())
        for block in BLOCKS:
            time.sleep(0.05)
            yield block

    def ask() -> Pixels:
        start.wait()
        return decode_once([tmp_path], "all", "key", 12, slow)

    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(ask) for _ in range(4)]]
    assert len(decoded) == 1
    assert all(np.array_equal(result, IMAGES) for result in results)
    assert names(tmp_path) == ["all-key.npy", "all.lock"]


def test_processes_decode_once_and_whoever_waits_sees_progress(tmp_path: Path) -> None:
    cache, gate, told = tmp_path / "cache", tmp_path / "gate", []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        gate.touch()

    with decoder(cache, gate) as other:
        assert np.array_equal(decode_once([cache], "all", "key", 12, unexpected, progress), IMAGES)
        assert told[0] == (4, 12)
        assert told == sorted(told)
        output, _ = other.communicate(timeout=60)
        assert output.split() == ["6", "8", "10", "12", "sum", str(IMAGES.sum())]


def test_a_killed_decoder_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    with decoder(tmp_path, tmp_path / "gate") as other:
        other.send_signal(signal.SIGKILL)
        assert other.wait(60) != 0
    (left,) = tmp_path.glob("*.part")
    assert left.stat().st_size > 0
    assert not list(tmp_path.glob("*.npy"))
    assert np.array_equal(decode_once([tmp_path], "all", "key", 12, blocks), IMAGES)
    assert names(tmp_path) == ["all-key.npy", "all.lock"]


def test_an_error_is_handed_on_and_the_next_caller_decodes(tmp_path: Path) -> None:
    def broken() -> Iterator[Pixels]:
        yield BLOCKS[0]
        raise SnclError("no image")

    with pytest.raises(SnclError, match="no image"):
        decode_once([tmp_path], "all", "key", 12, broken)
    assert names(tmp_path) == ["all.lock"]
    assert np.array_equal(decode_once([tmp_path], "all", "key", 12, blocks), IMAGES)


def test_the_first_folder_that_can_be_written_to(tmp_path: Path) -> None:
    blocked, free = tmp_path / "file", tmp_path / "free"
    blocked.write_text("a file where a folder should be")
    assert np.array_equal(decode_once([blocked, free], "all", "key", 12, blocks), IMAGES)
    assert names(free) == ["all-key.npy", "all.lock"]
    with pytest.raises(SnclError, match=f"cannot be stored in {blocked}"):
        decode_once([blocked], "all", "key", 12, blocks)


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sncl.streams.cache.os.fsync", full)
    with pytest.raises(SnclError, match=r"cannot be stored in .*No space left on device"):
        decode_once([tmp_path], "all", "key", 12, blocks)
    assert names(tmp_path) == ["all.lock"]


def test_blocks_keep_the_order(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(1100)]
    found = list(in_blocks(lambda path: path.name, paths))
    assert [len(block) for block in found] == [512, 512, 76]
    assert [name for block in found for name in block] == [path.name for path in paths]
