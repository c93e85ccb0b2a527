"""The 8 x 8 digits that come with scikit-learn: no download, seconds to learn, ten classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sncl.streams.datasets.images import Images, broken, contents

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPECTED = "scikit-learn, which brings them along"
CLASSES = 10
ROWS, PIXELS = 1797, 64
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
    """A fixed, stratified split: class by class, every fifth image is for testing, 360 of all 1797.

    The file is read here: importing scikit-learn for it would take as long as learning a task.
    """
    import numpy as np
    import torch

    table = numbers(files(folder)[0])
    x = torch.from_numpy(np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8))
    y = torch.from_numpy(table[:, -1]).long()
    by_class = torch.sort(y, stable=True).indices  # class by class, in file order
    is_test = torch.zeros(len(y), dtype=torch.bool)
    is_test[by_class[::5]] = True
    return Images(x[~is_test], y[~is_test], x[is_test], y[is_test])


def numbers(path: Path) -> NDArray[np.float64]:
    """The rows of the file: 64 pixels from 0 to 16, and the class."""
    import numpy as np

    try:
        lines = contents(path).decode("ascii").splitlines()
        table = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, 0))
    except ValueError as error:
        raise broken(path, "is no table of numbers") from error
    if table.shape != (ROWS, PIXELS + 1):
        raise broken(path, f"holds {table.shape[0]} rows of {table.shape[1]} numbers, not {ROWS} of {PIXELS + 1}")
    return table
