"""The 8 x 8 digits that come with scikit-learn: no download, seconds to learn, ten classes."""

from __future__ import annotations

from pathlib import Path

from sncl.errors import SnclError
from sncl.streams.datasets.images import Images

EXPECTED = "scikit-learn, which brings them along"
CLASSES = 10
MISSING = "The digits data set comes with scikit-learn: install it with 'pip install scikit-learn'."


def find(root: Path) -> Path | None:
    """Where scikit-learn is installed; nothing lies under ``root``."""
    from importlib.util import find_spec

    spec = find_spec("sklearn")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def files(folder: Path) -> list[Path]:
    """What is read."""
    return [folder / "datasets" / "data" / "digits.csv.gz"]


def read(folder: Path) -> Images:
    """A fixed, stratified split: class by class, every fifth image is for testing, 360 of all 1797."""
    import numpy as np
    import torch

    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SnclError(MISSING) from error
    digits = load_digits()
    x = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8))[:, None]
    y = torch.from_numpy(digits.target).long()
    by_class = torch.sort(y, stable=True).indices  # class by class, in file order
    is_test = torch.zeros(len(y), dtype=torch.bool)
    is_test[by_class[::5]] = True
    return Images(x[~is_test], y[~is_test], x[is_test], y[is_test])
