"""The user's arrays: found under any usual name, with channels wherever they stand."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import user_files as files


def test_names_of_arrays_are_found(tmp_path: Path) -> None:
    plain = files.read_data(files.save_arrays(tmp_path / "plain.npz"))

    def renamed(arrays: dict[str, Any]) -> None:
        arrays |= {"Data": arrays.pop("x"), "LABELS": arrays.pop("y"), "comment": np.array("hello")}

    other = files.read_data(files.save_arrays(tmp_path / "other.npz", renamed))
    assert other.user_data.fingerprint == plain.user_data.fingerprint
    assert any("x is 'Data', y is 'LABELS'; not used: comment" in note for note in other.notes)


def test_where_channels_stand_does_not_matter(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 5, 4), dtype=np.uint8)
    kinds = {"first": x, "last": x.transpose(0, 2, 3, 1), "wide": x.astype(np.int64)}
    prints = set()
    for name, values in kinds.items():
        path = files.save_arrays(tmp_path / f"{name}.npz", lambda arrays, values=values: arrays.update(x=values))
        found = files.read_data(path)
        assert (found.user_data.network, found.user_data.pixels, found.dataset.train_x.dtype) == (
            "resnet18",
            True,
            torch.uint8,
        )
        prints.add(found.user_data.fingerprint)
    assert len(prints) == 1
