"""Two run folders that should be the same: asked by every test of runs that are interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sncl.training.checkpoint import CHECKSUM, read_checkpoint, read_json
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT

RESULT = "result.json"
WHEN = ("seconds", CHECKSUM)  # the time that a run took, and what depends on it


def differences(folder: Path, other: Path) -> list[str]:
    """What two run folders do not have in common; the time they took does not count."""
    (one, said), (two, told) = read_checkpoint(folder / CHECKPOINT), read_checkpoint(other / CHECKPOINT)
    for description in (said, told):
        del description["scores"]["seconds"]
    found = [] if said == told else ["the checkpoint's description"]
    found += [f"{name} is in one only" for name in one.keys() ^ two.keys()]
    found += [name for name in one.keys() & two.keys() if not identical(one[name], two[name])]
    return found + ([] if (folder / LOG).read_bytes() == (other / LOG).read_bytes() else [LOG])


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def same_checkpoint(path: Path, other: Path) -> bool:
    """Whether two files hold the same tensors and say the same about them."""
    (tensors, said), (others, told) = read_checkpoint(path), read_checkpoint(other)
    assert said == told and tensors.keys() == others.keys()
    return all(identical(tensors[name], others[name]) for name in tensors)


def result_numbers(folder: Path) -> dict[str, Any]:
    """What ``result.json`` says, apart from the time it took."""
    return {key: value for key, value in read_json(folder / RESULT).items() if key not in WHEN}


def same_run(folder: Path, other: Path) -> bool:
    """Whether two finished runs are the same, file by file, and nothing else lies in their folders."""
    assert {path.name for path in folder.iterdir()} == {path.name for path in other.iterdir()}
    assert differences(folder, other) == []
    assert result_numbers(folder) == result_numbers(other)
    return True


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
