"""The user's data in one .npz file: inputs, labels and, if there are any, test samples and domains.

Nothing in it is unpickled. An array is found by any usual name of its role; two arrays for one role are refused. Arrays
without a role are not read.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.user.archive import Arrays, array_names, read_arrays
from sncl.streams.user.listing import Annotations, Inputs, Listing, as_strings
from sncl.streams.user.spec import DataSpec
from sncl.tables.columns import some

ARRAY_NAMES = {
    "x": ("x", "x_train", "train_x", "data", "images", "features", "train_images", "train_data"),
    "y": ("y", "y_train", "train_y", "labels", "targets", "target", "train_labels"),
    "test x": ("test_x", "x_test", "test_images", "test_data"),
    "test y": ("test_y", "y_test", "test_labels", "test_targets"),
    "domain": ("domain", "domains", "train_domain", "domain_train"),
    "test domain": ("test_domain", "domain_test", "test_domains"),
}


def list_arrays(spec: DataSpec) -> Listing:
    """The samples of a .npz file."""
    path = spec.path
    if spec.target is not None or spec.size is not None:
        raise SnclError("`target` is for tables and `size` for folders of images; a .npz file takes neither")
    if path.is_dir():
        raise SnclError(f"npz: takes a .npz file, and {path} is a folder; for images say folder:PATH")
    names = array_names(path)
    roles = roles_of(names, path, spec.domain)
    check_arrays(spec, names, roles)
    arrays = read_arrays(path, tuple(roles.values()))
    x = as_inputs(arrays[roles["x"]], f"{path}: {roles['x']!r}")
    train = annotate_arrays(arrays, roles, "", len(x), path)
    test_x, test = None, None
    if "test x" in roles:
        test_x = as_inputs(arrays[roles["test x"]], f"{path}: {roles['test x']!r}")
        if test_x.shape[1:] != x.shape[1:] or test_x.dtype != x.dtype:
            raise SnclError(
                f"{path}: {roles['x']} and {roles['test x']} differ in the shape or type of a row: "
                f"{list(x.shape[1:])} {x.dtype}, {list(test_x.shape[1:])} {test_x.dtype}"
            )
        test = annotate_arrays(arrays, roles, "test ", len(test_x), path)
        if (train.domains is None) != (test.domains is None):
            raise SnclError(f"{path} has domains for its training rows or its test rows only; give both or none")

    def load(indices: Tensor, test_indices: Tensor) -> Inputs:
        return Inputs(x[indices], (x if test_x is None else test_x)[test_indices])

    unused = [name for name in names if name not in roles.values()]
    note = ", ".join(f"{role} is {name!r}" for role, name in roles.items())
    note += f"; not used: {some(unused)}" if unused else ""
    return Listing(train, test, load, domain=roles.get("domain"), notes=[note])


def roles_of(arrays: Collection[str], path: Path, domain: str | None) -> dict[str, str]:
    """The name of the array for each role."""
    if domain is not None and domain not in arrays:
        raise SnclError(f"`domain`: {path} has no array {domain!r}; it holds {some(arrays, 10)}")
    roles: dict[str, str] = {}
    for role, names in ARRAY_NAMES.items():
        fitting = [name for name in arrays if name.lower() in names]
        if role == "domain" and domain is not None:
            fitting = [domain]
        if len(fitting) > 1:
            raise SnclError(f"{path} has several arrays for {role}: {', '.join(fitting)}; leave one of them")
        if fitting:
            roles[role] = fitting[0]
    beside = [name for name in (f"test_{domain}", f"{domain}_test") if name in arrays]
    return roles | ({"test domain": beside[0]} if beside else {})


def check_arrays(spec: DataSpec, arrays: Collection[str], roles: dict[str, str]) -> None:
    """Refuse a file in which a needed array is missing."""
    for role in ("x", "y"):
        if role not in roles:
            have, names = some(arrays, 10) or "nothing", ", ".join(ARRAY_NAMES[role])
            raise SnclError(f"{spec.path} has no array {role}: allowed names are {names}; it holds {have}")
    if ("test x" in roles) != ("test y" in roles):
        there, missing = ("test x", "test y") if "test x" in roles else ("test y", "test x")
        names = ", ".join(ARRAY_NAMES[missing])
        raise SnclError(f"{spec.path} has {roles[there]} but no {missing}: allowed names are {names}")
    if spec.cut == "domain" and "domain" not in roles:
        raise SnclError(f'`cut="domain"` needs an array of domains in {spec.path}: "domain", or the one `domain` names')


def annotate_arrays(arrays: Arrays, roles: dict[str, str], split: str, samples: int, path: Path) -> Annotations:
    """Labels and domains of the training (``split`` "") or the test ("test ") samples, one for each."""
    labels, domains = (
        as_strings(arrays[roles[split + role]], f"{path}: the values of {roles[split + role]!r}")
        if split + role in roles
        else None
        for role in ("y", "domain")
    )
    assert labels is not None
    for values, role in ((labels, "y"), (domains, "domain")):
        if values is not None and len(values) != samples:
            x, other = roles[split + "x"], roles[split + role]
            raise SnclError(f"{path}: {x!r} has {samples} rows and {other!r} has {len(values)}")
    return Annotations(labels, domains)


def as_inputs(values: NDArray[Any], what: str) -> Tensor:
    """Images as uint8 or float32 [samples, channels, height, width], anything else as float64 [samples, columns]."""
    if values.dtype.kind not in "biuf":
        raise SnclError(f"{what} holds {values.dtype}; inputs are numbers")
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        raise SnclError(
            f"{what} has shape {list(values.shape)}; inputs are numbers [rows, columns] or images "
            "[rows, height, width], [rows, channels, height, width] or [rows, height, width, channels]"
        )
    if values.dtype.kind == "f":
        invalid = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if invalid.any():
            raise SnclError(f"{what} holds nan or infinity in row {int(invalid.argmax()) + 1}")
    if values.ndim == 2:
        return torch.from_numpy(values.astype(np.float64))
    if values.ndim == 3:
        values = values[:, None]
    elif values.shape[1] not in (1, 3):
        if values.shape[3] not in (1, 3):
            raise SnclError(f"{what} of shape {list(values.shape)} has no axis of 1 or 3 channels")
        values = values.transpose(0, 3, 1, 2)
    if values.dtype.kind == "f":
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if values.min() < 0 or values.max() > 255:
        raise SnclError(f"{what} holds whole numbers outside 0 .. 255; scale them, or store floats")
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.uint8))
