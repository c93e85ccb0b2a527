"""A damaged cache of decoded images is decoded again: its checksum tells."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from limits import limited_memory
from mutants import FUZZ, fresh, mutants

from sncl.streams.cache import decode_once

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), dtype=np.uint8)


@FUZZ
@given(st.data())
def test_cache(tmp_path: Path, data: st.DataObject) -> None:
    folder = fresh(tmp_path)
    decode_once([folder], "all", "key", 6, lambda: [IMAGES[:4], IMAGES[4:]])
    path = folder / "all-key.npy"
    path.write_bytes(data.draw(mutants([path.read_bytes()])))
    with limited_memory():
        found = decode_once([folder], "all", "key", 6, lambda: [IMAGES])
    assert np.array_equal(found, IMAGES)
