"""Damaged .npz files give the same arrays, whose checksums they carry, or are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import user_files as files
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused


def arrays() -> dict[str, Any]:
    y = np.arange(20) % 2
    return {"x": np.random.default_rng(0).normal(size=(20, 3)), "y": y, "domain": np.array(["a", "b"])[y], "more": y}


@FUZZ
@given(st.data())
def test_npz(tmp_path: Path, data: st.DataObject) -> None:
    np.savez(tmp_path / "plain.npz", **arrays())
    np.savez_compressed(tmp_path / "packed.npz", **arrays())
    whole = files.read_data(tmp_path / "plain.npz")
    contents = [(tmp_path / f"{name}.npz").read_bytes() for name in ("plain", "packed")]
    path = fresh(tmp_path, ".npz")
    path.write_bytes(data.draw(mutants(contents)))
    loaded = read_or_refused(lambda: files.read_data(path))
    if loaded is not None and loaded.dataset.domain_names:
        assert loaded.user_data.fingerprint == whole.user_data.fingerprint
    path.unlink()
