"""Damaged .npy files are read or refused; never is more read than there is."""

import io
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.prediction.arrays import read_array


@FUZZ
@given(st.data())
def test_npy(tmp_path: Path, data: st.DataObject) -> None:
    contents = []
    for array in (np.random.default_rng(0).normal(size=(9, 4)), np.asfortranarray(np.arange(24).reshape(4, 6))):
        file = io.BytesIO()
        np.save(file, array)
        contents.append(file.getvalue())
    path = fresh(tmp_path, ".npy")
    path.write_bytes(data.draw(mutants(contents)))
    found = read_or_refused(lambda: read_array(path))
    if found is not None:
        x, labels, notes = found
        assert labels is None and notes == [] and x.nbytes <= path.stat().st_size and len(np.array(x)) == len(x)
    path.unlink()
