"""The array to predict for in a .npy or .npz file. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sncl.errors import SnclError
from sncl.streams.npy import read_header
from sncl.streams.user.archive import array_names, read_arrays
from sncl.streams.user.arrays import roles_of
from sncl.tables.columns import some

Array = NDArray[Any]


def read_array(path: Path) -> tuple[Array, Array | None, list[str]]:
    """The inputs, the labels where there are any, and what a user should know.

    A .npz file has one array, or its inputs are named as in training (``x``, ``images``, ...).
    """
    if path.suffix.lower() == ".npy":
        return _not_empty(path, _mapped(path)), None, []
    names = array_names(path)
    roles = {"x": names[0]} if len(names) == 1 else roles_of(names, path, None)
    if "x" not in roles:
        raise SnclError(f"{path} has no array 'x' to predict for, and more than one other: {some(names, 10)}")
    used = tuple(roles[role] for role in ("x", "y") if role in roles)
    arrays = read_arrays(path, used)
    x, y = _not_empty(path, arrays[roles["x"]]), arrays.get(roles.get("y", ""))
    if y is not None and (y.ndim != 1 or len(y) != len(x)):
        y = None  # of something else
    unused = [name for name in names if name not in used]
    note = f"predicting for {roles['x']!r}" + (f"; not used: {some(unused)}" if unused else "")
    return x, y, [note] if unused else []


def _mapped(path: Path) -> Array:
    """The array of a file, of which only what is looked at is read."""
    try:
        with path.open("rb") as file:
            header = read_header(file)
            if path.stat().st_size < header.start + header.nbytes:
                raise ValueError("is cut short")
        if not header.nbytes:
            return np.zeros(header.shape, header.dtype)
        return np.memmap(path, header.dtype, "r", header.start, header.shape, "F" if header.fortran else "C")
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} cannot be read as a .npy file: it {error}") from error


def _not_empty(path: Path, x: Array) -> Array:
    if x.ndim < 2 or 0 in x.shape:
        raise SnclError(f"{path} holds an array of shape {list(x.shape)}; inputs have one row a sample")
    return x
