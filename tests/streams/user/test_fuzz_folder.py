"""Damaged images are decoded or refused, and never anything else."""

from pathlib import Path

import numpy as np
import user_files as files
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from PIL import Image

FORMATS = ("png", "jpg", "gif", "bmp", "tiff", "webp", "ppm")


def whole(folder: Path, suffix: str) -> bytes:
    path = folder / f"whole.{suffix}"
    if not path.exists():
        pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return path.read_bytes()


@FUZZ
@given(st.data())
def test_images(tmp_path: Path, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(FORMATS))
    content = data.draw(mutants([whole(tmp_path, suffix)]))
    zoo = files.save_small_images(fresh(tmp_path), each=2)
    (zoo / "ape" / f"9.{suffix}").write_bytes(content)
    loaded = read_or_refused(lambda: files.read_data(f"folder:{zoo}", size=5))
    assert loaded is None or loaded.dataset.train_x.shape[2:] == (5, 5)
