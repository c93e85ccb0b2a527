"""How reading data grows with columns, classes and files: by instructions, and by the memory that is taken."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from growth import assert_linear, work
from user_files import read_data

FEW = (10, 100)
MANY = pytest.param((*FEW, 1000), marks=pytest.mark.slow, id="1000")
ROWS = 20


def save_columns(path: Path, columns: int) -> str:
    values = np.random.default_rng(0).normal(size=(ROWS, columns))
    lines = [",".join([*(f"column {number}" for number in range(columns)), "label"])]
    lines += [",".join([*(f"{value:.3f}" for value in row), f"class {at % 2}"]) for at, row in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return f"table:{path}"


def save_classes(path: Path, classes: int) -> str:
    lines = ["a,b,label", *(f"{at % 7}.5,{at % 11}.25,class {at % classes}" for at in range(6 * classes))]
    path.write_text("\n".join(lines) + "\n")
    return f"table:{path}"


def peak(name: str) -> int:
    """The most memory that Python and NumPy hold while data are read."""
    tracemalloc.start()
    try:
        read_data(name, target="label")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("counts", [FEW, MANY])
@pytest.mark.parametrize("save", [save_columns, save_classes])
def test_tables(tmp_path: Path, counts: tuple[int, ...], save: object) -> None:
    assert callable(save)
    names = {count: save(tmp_path / f"{count}.csv", count) for count in counts}
    for name in names.values():
        read_data(name, target="label")  # what is imported and kept on the first call
    assert_linear({count: work(lambda name=name: read_data(name, target="label")) for count, name in names.items()})
    assert_linear({count: peak(name) for count, name in names.items()})
