"""CIFAR-10 from its binary and its Python version, and from damaged and hostile files."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_files import CIFAR_FILES, write_cifar

from sncl.errors import SnclError
from sncl.streams.datasets.sources import load


@pytest.mark.parametrize("protocol", [2, 4])
def test_both_versions_of_cifar_give_the_same_tensors(tmp_path: Path, protocol: int) -> None:
    binary, pickled = write_cifar(tmp_path, protocol)
    one, two = load("cifar10", binary.parent), load("cifar10", pickled.parent)
    assert one.train_x.shape == (20, 3, 32, 32)
    assert torch.equal(one.train_x, two.train_x)
    assert torch.equal(one.train_y, two.train_y)
    assert one.fingerprint() == two.fingerprint()
    record = (binary / "data_batch_2.bin").read_bytes()  # row 4 of all
    assert int(one.train_y[4]) == record[0]
    assert bytes(one.train_x[4].flatten().tolist()) == record[1:3073]
    test_record = (binary / "test_batch.bin").read_bytes()
    assert int(one.test_y[0]) == test_record[0]
    assert one.test_x[0, 2, 31, 31] == test_record[3072]


def test_old_names_of_numpy_modules_are_read(tmp_path: Path) -> None:
    """The official files say numpy.core, as numpy 1 did."""
    _, pickled = write_cifar(tmp_path)
    for name in CIFAR_FILES:
        data = (pickled / name).read_bytes()
        assert b"numpy._core" in data
        (pickled / name).write_bytes(data.replace(b"numpy._core", b"numpy.core"))
    assert load("cifar10", pickled.parent).train_x.shape == (20, 3, 32, 32)


class Attack:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    _, pickled = write_cifar(tmp_path)
    trace = tmp_path / "executed"
    attack = pickle.dumps({b"data": Attack(trace), b"labels": [0]})
    pickle.loads(attack)
    assert trace.exists()  # the attack works on an ordinary unpickler
    trace.rmdir()
    (pickled / "data_batch_3").write_bytes(attack)
    with pytest.raises(SnclError, match=r"data_batch_3 is not a pickled CIFAR-10 batch .*mkdir"):
        load("cifar10", pickled.parent)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "no 'data'"),
        ({b"data": np.zeros((2, 3072), np.int64), b"labels": [0, 1]}, "no 'data'"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "no list 'labels'"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 300]}, "0 to 300"),
    ],
)
def test_damaged_python_cifar(tmp_path: Path, batch: object, message: str) -> None:
    _, pickled = write_cifar(tmp_path)
    (pickled / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(SnclError, match=message) as caught:
        load("cifar10", pickled.parent)
    assert "test_batch" in str(caught.value)


def test_damaged_binary_cifar(tmp_path: Path) -> None:
    binary, _ = write_cifar(tmp_path)
    path = binary / "data_batch_1.bin"
    good = path.read_bytes()
    for bad, message in ((good[:-1], "whole number of records"), (b"", "whole number"), (b"\x0b" + good[1:], "labels")):
        path.write_bytes(bad)
        with pytest.raises(SnclError, match=message):
            load("cifar10", binary.parent)


def written_by_numpy_1(pixels: bytes, rows: int, labels: list[int]) -> bytes:
    """A batch opcode by opcode, as Python 2 and numpy 1 wrote the official files: protocol 2, plain byte strings."""
    made = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"M" + struct.pack("<H", rows) + b"M\x00\x0c\x86"
    state = b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + b"U\x05a.png" * rows + b"e"
    return b"\x80\x02}q\x00(U\x04data" + made + state + b"U\x06labels" + numbers + b"U\x09filenames" + names + b"u."


def test_official_python_files_are_read(tmp_path: Path) -> None:
    binary, pickled = write_cifar(tmp_path)
    for name in CIFAR_FILES:
        records = np.frombuffer((binary / f"{name}.bin").read_bytes(), np.uint8).reshape(-1, 3073)
        batch = written_by_numpy_1(records[:, 1:].tobytes(), len(records), records[:, 0].tolist())
        (pickled / name).write_bytes(batch)
        assert np.array_equal(pickle.loads(batch, encoding="bytes")[b"data"], records[:, 1:])
    one, two = load("cifar10", binary.parent), load("cifar10", pickled.parent)
    assert one.fingerprint() == two.fingerprint()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def kind_of(code: str, inside: bytes, size: int, flags: int) -> bytes:
    state = (
        b"(K\x03" + text("|") + inside + b"J" + struct.pack("<i", size) + b"J\xff\xff\xff\xffK" + bytes([flags]) + b"tb"
    )
    return b"cnumpy\ndtype\n(" + text(code) + b"\x89\x88tR" + state


# A type whose object field is hidden (no flag says so), an array of it over chosen bytes, and an element that is set:
# the old "object" at that address is released.
HIDDEN = b"N(" + text("f") + b"t}" + text("f") + b"(" + kind_of("O8", b"NNN", -1, 63) + b"K\x00ts"
ONLY_NUMPY = (
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
    b"(K\x01(K\x01t" + kind_of("V8", HIDDEN, 8, 0) + b"\x89C\x08AAAAAAAAtbK\x00N\x85s."
)


ATTACKS = [
    ONLY_NUMPY,
    b"\x80\x02}(U\x04data" + ONLY_NUMPY[2:-1] + b"u.",
    b"\x80\x02cnumpy\ndtype\n}b.",  # gives a state to numpy.dtype itself
    b"\x80\x02r\xff\xff\xff\x7f.",  # a place in the memo that would take gigabytes
    b"\x80\x02K\x00" + b"\x85" * 200_000 + b"}" + b"\x85" * 3 + b".",  # tuples in tuples
    b"\x80\x02}(K\x00" + b"\x85" * 200_000 + b"K\x01u.",  # ... as a key, which would be hashed in depth
    b"\x80\x02" + b"(" * 200_000 + b".",
    b"\x80\x02\x8e" + struct.pack("<Q", 2**62) + b".",  # more bytes than there are
    b"\x80\x02I" + b"9" * 100_000 + b"\n.",
    b"\x80\x02cbuiltins\neval\n(U\x011tR.",
    pickle.dumps({b"data": [1], b"labels": [2**80]}),
]
READ_ALL = """
import pathlib, sys
from sncl.streams.datasets.sources import load
for root in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        load("cifar10", root / "b")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_pickle_cannot_touch_memory(tmp_path: Path) -> None:
    """In a process of its own, which a success of an attack would kill."""
    for number, attack in enumerate(ATTACKS):
        _, pickled = write_cifar(tmp_path / f"{number:02}")
        (pickled / "data_batch_3").write_bytes(attack)
    done = subprocess.run([sys.executable, "-c", READ_ALL, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(ATTACKS)
    assert all(line.startswith("SnclError The file ") and "data_batch_3" in line for line in lines)
