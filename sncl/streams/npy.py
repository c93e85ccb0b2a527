"""Headers of .npy arrays, read without believing them: a damaged or hostile one is a ValueError, and nothing else."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x93NUMPY"
LENGTHS = {1: 2, 2: 4, 3: 4}  # bytes that give the length of the header, by version
LONGEST_HEADER = 10_000  # characters
MOST_AXES = 32
LONGEST_AXIS = 2**40
PYTHON_2_NUMBER = re.compile(r"(\d)L\b")


@dataclass(frozen=True)
class ArrayHeader:
    """What an array says before its values come."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  # of its values, in bytes

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self, values: bytes | bytearray) -> NDArray[Any]:
        """The array of these bytes, of which there are as many as the header says."""
        if len(values) < self.nbytes:
            raise ValueError(f"is cut short: it has {len(values)} of {self.nbytes} bytes")
        if not self.dtype.itemsize:
            raise ValueError("holds empty texts only")
        if not self.nbytes:
            return np.zeros([axis if axis < 2 else 0 for axis in self.shape], self.dtype)
        flat = np.frombuffer(values, self.dtype, math.prod(self.shape))
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


def read_header(file: IO[bytes]) -> ArrayHeader:
    """The header at the beginning of a file, which then stands where the values begin."""
    start = file.read(8)
    length_bytes = LENGTHS.get(start[6]) if len(start) == 8 and start[:6] == MAGIC else None
    if length_bytes is None:
        raise ValueError("is no array, such as numpy.save writes")
    length = int.from_bytes(file.read(length_bytes), "little")
    text = file.read(length) if length <= LONGEST_HEADER else b""
    if len(text) < length or not length:
        raise ValueError("has a header that is cut short or damaged")
    fields = _literal(text)
    descr, fortran, shape = (fields.get(key) for key in ("descr", "fortran_order", "shape"))
    if not isinstance(shape, tuple) or len(shape) > MOST_AXES or not isinstance(fortran, bool):
        raise ValueError("has a damaged header")
    if not all(type(axis) is int and 0 <= axis <= LONGEST_AXIS for axis in shape):
        raise ValueError("has a damaged header")
    return ArrayHeader(_dtype(descr), shape, fortran, 8 + length_bytes + length)


def _literal(text: bytes) -> dict[str, Any]:
    try:
        fields = ast.literal_eval(PYTHON_2_NUMBER.sub(r"\1", text.decode("utf-8")).strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("has a damaged header") from error
    if not isinstance(fields, dict):
        raise ValueError("has a damaged header")
    return fields


def _dtype(descr: Any) -> np.dtype[Any]:
    """The type of plain numbers and texts; records and objects are not read."""
    match = re.fullmatch(r"[<>|=]?([a-zA-Z?])(\d{0,9})", descr) if isinstance(descr, str) else None
    if match and match[1] == "O":
        raise ValueError("holds Python objects, which are not read; store numbers and texts only")
    try:
        if match is not None:
            found: np.dtype[Any] = np.dtype(descr)
            return found
    except (TypeError, ValueError) as error:
        raise ValueError("has a damaged header") from error
    raise ValueError("holds neither numbers nor texts")
