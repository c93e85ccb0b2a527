"""A folder of the user's images: one folder for each class.

``PATH/<class>/*.png``, or ``PATH/<domain>/<class>/*.png``, with ``train`` and ``test`` (or ``val``) above them where
there is a test set. Samples come in the order of their file names, numbers by value, whatever their class, so that the
frames of a recording keep their order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.cache import Progress
from sncl.streams.user.images import decode_images
from sncl.streams.user.listing import Annotations, Inputs, Listing, natural_key
from sncl.streams.user.recognise import IMAGE_SUFFIXES
from sncl.streams.user.spec import DataSpec
from sncl.tables.columns import some

TEST_NAMES = ("test", "val", "valid", "validation")
LAYOUT = "PATH/<class>/*.png, PATH/<domain>/<class>/*.png, or PATH/train and PATH/test with such folders in them"


class ImageFile(NamedTuple):
    """An image, its class, and its domain where there are any."""

    path: Path
    label: str
    domain: str | None


def list_folder(spec: DataSpec, progress: Progress | None = None) -> Listing:
    """The images of a folder."""
    if spec.target is not None or spec.domain is not None:
        raise SnclError("`target` and `domain` name columns; in a folder, classes and domains are folders themselves")
    if spec.size is not None and spec.size < 1:
        raise SnclError(f"`size` is at least 1 pixel, not {spec.size}")
    if not spec.path.is_dir():
        raise SnclError(f"folder: takes a folder of images ({LAYOUT}), and {spec.path} is a file")
    train_folder, test_folder, notes = splits(spec.path)
    train, test = image_files(train_folder), None if test_folder is None else image_files(test_folder)
    with_domains = {files[0].domain is not None for files in (train, test) if files is not None}
    if len(with_domains) > 1:
        raise SnclError(f"{train_folder} and {test_folder} differ: one has folders of domains and the other has not")
    if spec.cut == "domain" and with_domains == {False}:
        raise SnclError(f'`cut="domain"` needs {spec.path}/<domain>/<class>/ with images in it')

    def load(indices: Tensor, test_indices: Tensor) -> Inputs:
        files = [train[index] for index in indices.tolist()]
        files += [(train if test is None else test)[index] for index in test_indices.tolist()]
        x = torch.from_numpy(decode_images(spec.path, [file.path for file in files], spec.size, progress))
        return Inputs(x[: len(indices)], x[len(indices) :])

    return Listing(annotate_files(train), None if test is None else annotate_files(test), load, notes=notes)


def annotate_files(files: Sequence[ImageFile]) -> Annotations:
    domains = [file.domain for file in files if file.domain is not None]
    return Annotations(np.array([file.label for file in files]), np.array(domains) if domains else None)


def splits(path: Path) -> tuple[Path, Path | None, list[str]]:
    """The folder to train on, the one to test on if there is one, and a note on what is left out."""
    inside = {each.name.lower(): each for each in folders(path)}
    if "train" not in inside:
        return path, None, []
    tests = [inside[name] for name in TEST_NAMES if name in inside]
    unused = [each.name for each in inside.values() if each not in (inside["train"], *tests[:1])]
    notes = [f"not used: the folders {some(unused)} beside {inside['train'].name}"] if unused else []
    return inside["train"], tests[0] if tests else None, notes


def image_files(path: Path) -> list[ImageFile]:
    """All images below a folder, in the order of their names."""
    direct = [ImageFile(image, top.name, None) for top in folders(path) for image in images(top)]
    nested = [
        ImageFile(image, inner.name, top.name)
        for top in folders(path)
        for inner in folders(top)
        for image in images(inner)
    ]
    if not direct and not nested:
        raise SnclError(f"{path} holds no images in folders of classes; expected is {LAYOUT}")
    for file in direct or nested:
        if any("\udc80" <= character <= "\udcff" for name in (file.label, file.domain or "") for character in name):
            raise SnclError(f"{path} has a folder whose name is no UTF-8, {os.fsencode(file.label)!r}; rename it")
    if direct and nested:
        raise SnclError(
            f"{path} has images both in {direct[0].path.parent.name}/ and in {nested[0].domain}/{nested[0].label}/; "
            f"expected is {LAYOUT}"
        )
    return sorted(direct or nested, key=lambda file: (natural_key(file.path.name), file.path))


def folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def images(path: Path) -> list[Path]:
    return [
        each
        for each in path.iterdir()
        if each.suffix.lower() in IMAGE_SUFFIXES and not each.name.startswith(".") and each.is_file()
    ]
