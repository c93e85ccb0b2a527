"""A person's own data in one .npz file: inputs, labels and, if there are any, test rows and domains.

Nothing in it is unpickled. Whichever of the usual names an array has, it is found; two arrays for one part are refused.
"""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.user.listing import Asked, Listing, Part, some, texts

Arrays = dict[str, NDArray[Any]]

NAMES = {
    "x": ("x", "x_train", "train_x", "data", "images", "features", "train_images", "train_data"),
    "y": ("y", "y_train", "train_y", "labels", "targets", "target", "train_labels"),
    "test x": ("test_x", "x_test", "test_images", "test_data"),
    "test y": ("test_y", "y_test", "test_labels", "test_targets"),
    "domain": ("domain", "domains", "train_domain", "domain_train"),
    "test domain": ("test_domain", "domain_test", "test_domains"),
}


def list_arrays(asked: Asked) -> Listing:
    """The rows of a .npz file."""
    path = asked.path
    if asked.target is not None or asked.size is not None:
        raise SnclError("--target is for tables and --size for folders of images; a .npz file takes neither")
    stamp = path.stat()
    arrays = _contents(path, stamp.st_mtime_ns, stamp.st_size)
    found = parts(arrays, path, asked.domain)
    for role in ("x", "y"):
        if role not in found:
            have = some(arrays, 10) or "nothing"
            raise SnclError(f"{path} has no array {role}: allowed names are {', '.join(NAMES[role])}; it holds {have}")
    if ("test x" in found) != ("test y" in found):
        there, missing = ("test x", "test y") if "test x" in found else ("test y", "test x")
        raise SnclError(f"{path} has {found[there]} but no {missing}: allowed names are {', '.join(NAMES[missing])}")
    if asked.cut == "domain" and "domain" not in found:
        raise SnclError(f"--cut domain needs an array of domains in {path}: 'domain', or the one --domain names")
    x = inputs(arrays[found["x"]], found["x"], path)
    train = part(arrays, found, "", len(x), path)
    test_x, test = None, None
    if "test x" in found:
        test_x = inputs(arrays[found["test x"]], found["test x"], path)
        if test_x.shape[1:] != x.shape[1:] or test_x.dtype != x.dtype:
            raise SnclError(
                f"{path}: {found['x']} and {found['test x']} differ in the shape or type of a row: "
                f"{list(x.shape[1:])} {x.dtype}, {list(test_x.shape[1:])} {test_x.dtype}"
            )
        test = part(arrays, found, "test ", len(test_x), path)
        if (train.domains is None) != (test.domains is None):
            raise SnclError(f"{path} has domains for its training rows or its test rows only; give both or none")

    def load(rows: Tensor, test_rows: Tensor) -> tuple[Tensor, Tensor]:
        return x[rows], (x if test_x is None else test_x)[test_rows]

    said = ", ".join(f"{role} is {name!r}" for role, name in found.items())
    left = [name for name in arrays if name not in found.values()]
    notes = [said + (f"; not used: {some(left)}" if left else "")]
    return Listing(train, test, load, domain=found.get("domain"), notes=notes)


@lru_cache(maxsize=1)
def _contents(path: Path, changed: int, size: int) -> Arrays:
    """The arrays of the file as it was then; the last one is kept, for the runs of many seeds."""
    if not zipfile.is_zipfile(path):
        raise SnclError(f"{path} is no .npz file, such as numpy.savez writes")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except ValueError as error:
        raise SnclError(f"{path} holds Python objects, which are not read; store numbers and texts only") from error
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise SnclError(f"{path} cannot be read as a .npz file ({error})") from error


def parts(arrays: Arrays, path: Path, domain: str | None) -> dict[str, str]:
    """Which array plays which part."""
    if domain is not None and domain not in arrays:
        raise SnclError(f"--domain: {path} has no array {domain!r}; it holds {some(arrays, 10)}")
    found: dict[str, str] = {}
    for role, names in NAMES.items():
        fitting = [name for name in arrays if name.lower() in names]
        if role == "domain" and domain is not None:
            fitting = [domain]
        if len(fitting) > 1:
            raise SnclError(f"{path} has several arrays for {role}: {', '.join(fitting)}; leave one of them")
        if fitting:
            found[role] = fitting[0]
    beside = [name for name in (f"test_{domain}", f"{domain}_test") if name in arrays]
    return found | ({"test domain": beside[0]} if beside else {})


def part(arrays: Arrays, found: dict[str, str], which: str, rows: int, path: Path) -> Part:
    """Labels and domains of the training (``which`` "") or the test part, as many as there are rows."""
    labels, domains = (
        texts(arrays[found[which + role]], f"{path}: the values of {found[which + role]!r}")
        if which + role in found
        else None
        for role in ("y", "domain")
    )
    assert labels is not None
    for values, role in ((labels, "y"), (domains, "domain")):
        if values is not None and len(values) != rows:
            x, other = found[which + "x"], found[which + role]
            raise SnclError(f"{path}: {x!r} has {rows} rows and {other!r} has {len(values)}")
    return Part(labels, domains)


def inputs(values: NDArray[Any], name: str, path: Path) -> Tensor:
    """Images as uint8 or float32 [rows, channels, height, width], anything else as float64 [rows, columns]."""
    if values.dtype.kind not in "biuf":
        raise SnclError(f"{path}: {name!r} holds {values.dtype}; inputs are numbers")
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        raise SnclError(
            f"{path}: {name!r} has shape {list(values.shape)}; inputs are numbers [rows, columns] or images "
            "[rows, height, width], [rows, channels, height, width] or [rows, height, width, channels]"
        )
    if values.dtype.kind == "f":
        lost = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if lost.any():
            raise SnclError(f"{path}: {name!r} holds nan or infinity in row {int(lost.argmax()) + 1}")
    if values.ndim == 2:
        return torch.from_numpy(values.astype(np.float64))
    if values.ndim == 3:
        values = values[:, None]
    elif values.shape[1] not in (1, 3):
        if values.shape[3] not in (1, 3):
            raise SnclError(f"{path}: {name!r} of shape {list(values.shape)} has no axis of 1 or 3 channels")
        values = values.transpose(0, 3, 1, 2)
    if values.dtype.kind == "f":
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if values.min() < 0 or values.max() > 255:
        raise SnclError(f"{path}: {name!r} holds whole numbers outside 0 .. 255; scale them, or store floats")
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.uint8))
