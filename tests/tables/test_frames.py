"""Tables in memory as columns: frames, arrays, sparse matrices, rows and dictionaries."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sncl.errors import SnclError
from sncl.tables import columns_of


def plain(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns as lists, with None for what is missing."""
    return {
        name: [None if value is None or value != value else value for value in column.tolist()]
        for name, column in columns.items()
    }


FRAME = pd.DataFrame(
    {
        "n": [1.5, np.nan, 3.0],
        "i": pd.array([1, None, 3], dtype="Int64"),
        "t": ["a", None, " b "],
        "c": pd.Categorical(["u", None, "v"]),
        "b": pd.array([True, None, False], dtype="boolean"),
        "d": pd.to_datetime(["2024-01-01 12:00", None, "2024-01-03 00:00"]),
        "z": pd.to_datetime(["2024-01-01 12:00", None, "2024-01-03 00:00"]).tz_localize("Europe/Berlin"),
    }
)
EXPECTED = {
    "n": [1.5, None, 3.0],
    "i": [1.0, None, 3.0],
    "t": ["a", None, "b"],
    "c": ["u", None, "v"],
    "b": [True, None, False],
    "d": [datetime(2024, 1, 1, 12), None, datetime(2024, 1, 3)],
    "z": [datetime(2024, 1, 1, 11), None, datetime(2024, 1, 2, 23)],
}


def test_a_frame_of_pandas() -> None:
    assert plain(columns_of(FRAME)) == EXPECTED


def test_dictionaries_and_rows_of_the_same_values() -> None:
    zoned = datetime(2024, 1, 1, 13, tzinfo=UTC).astimezone()
    rows = [
        {"n": 1.5, "t": "a", "b": True, "d": date(2024, 1, 1), "z": zoned},
        {"n": None, "t": None, "b": None, "d": None},
        {"n": 3, "t": " b ", "b": False, "d": pd.NaT, "z": pd.NA},
    ]
    found = plain(columns_of(rows))
    assert found["n"] == [1.5, None, 3.0] and found["t"] == ["a", None, "b"] and found["b"] == [True, None, False]
    assert found["d"] == [datetime(2024, 1, 1), None, None] and found["z"] == [datetime(2024, 1, 1, 13), None, None]
    listed = plain(columns_of([list(row.values())[:4] for row in rows]))
    assert list(listed) == ["x1", "x2", "x3", "x4"] and list(listed.values()) == list(found.values())[:4]
    array = np.array([list(row.values())[:4] for row in rows], dtype=object)
    assert plain(columns_of(array, ["n", "t", "b", "d"])) == {name: found[name] for name in "ntbd"}


def test_mixed_values_are_categories_by_what_they_say() -> None:
    assert columns_of([["a"], [3], [3.0], [2.5], [True]])["x1"].tolist() == ["a", "3", "3", "2.5", "True"]


def test_other_frames_show_themselves() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"n": [1.5, None], "t": ["a", None]})
    assert plain(columns_of(table)) == {"n": [1.5, None], "t": ["a", None]}


def test_sparse_matrices_get_their_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.array([[0.0, 2.0], [0.0, 0.0], [7.0, 0.0]])
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        assert plain(columns_of(kind(array))) == {"x1": [0.0, 0.0, 7.0], "x2": [2.0, 0.0, 0.0]}
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 2**30)
    with pytest.raises(SnclError, match=r"a sparse matrix of 1000000 x 1000000 with its zeros would take .* GiB"):
        columns_of(sparse.csr_matrix((10**6, 10**6)))


def test_what_is_no_table_is_refused_in_a_line() -> None:
    for rows, words in (
        (np.zeros(3), "not one of shape \\[3\\]"),
        ([[1], [1, 2]], "rows of a table have one length, not 1, 2 values"),
        (7, "a list of rows, not int"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns 'a'"),
        ({"a": np.zeros((2, 2))}, "one value a row"),
        ({"a": np.zeros(2, complex)}, "holds complex128"),
    ):
        with pytest.raises(SnclError, match=words):
            columns_of(rows)
    with pytest.raises(SnclError, match="2 columns, and 1 names"):
        columns_of(np.zeros((2, 2)), ["a"])
