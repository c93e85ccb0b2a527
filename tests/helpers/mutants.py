"""Damaged files: bits turned over, pieces cut off, doubled, overwritten or moved. Used by the tests of every reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from limits import limited_memory

from sncl.errors import SnclError

Value = TypeVar("Value")
WANTED = os.environ.get("SNCL_FUZZ_EXAMPLES")  # of each test, other ones every time; `make fuzz` sets it
FUZZ = settings(max_examples=int(WANTED or 100), derandomize=WANTED is None, suppress_health_check=list(HealthCheck))
CORPUS = Path(__file__).parents[1] / "corpus"  # small files that stand for what has been difficult
HOSTILE = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"[" * 3000,
    b"9" * 400,
    b"null",
    b"-1",
    b"1e999",
    b"{}",
    b'"',
    b"\n",
    b"\x80\x02",
    b"nan",
)

_numbers = count()


@st.composite
def mutants(draw: st.DrawFn, contents: list[bytes]) -> bytes:
    """One of these contents with one to three damages."""
    data = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        kind = draw(st.sampled_from(["flip", "cut", "remove", "double", "move", "put", "overwrite"]))
        if kind == "flip" and start < len(data):
            data[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[start:]
        elif kind == "remove":
            del data[start : min(end, start + 40)]
        elif kind == "double":
            data[start:start] = data[start : min(end, start + 200)]
        elif kind == "move":
            piece = data[start : min(end, start + 40)]
            data[end : end + len(piece)] = piece
        else:
            piece = bytearray(draw(st.sampled_from(HOSTILE) | st.binary(max_size=9)))
            data[start : start + (len(piece) if kind == "overwrite" else 0)] = piece
    return bytes(data)


def fresh(folder: Path, suffix: str = "") -> Path:
    """A path that nothing has been read from yet."""
    return folder / f"{next(_numbers)}{suffix}"


def read_or_refused(read: Callable[[], Value]) -> Value | None:
    """What is read, in little memory; None where it is refused in one line, which is the only error there may be."""
    try:
        with limited_memory():
            return read()
    except SnclError as error:
        assert str(error) and "\n" not in str(error)
        assert not isinstance(error.__cause__, MemoryError), "it was refused only when there was no memory left"
        return None


def corpus(kind: str) -> list[bytes]:
    """The files that are kept for one kind of reader."""
    found = [path.read_bytes() for path in sorted((CORPUS / kind).iterdir())]
    assert found
    return found
