"""The user's tables: columns of numbers and of texts, CSV and Parquet."""

from pathlib import Path

import pytest
import user_files as files

from sncl.errors import SnclError


def test_columns_of_a_table(tmp_path: Path) -> None:
    rows = [[1.5, "b", "x"], [2.5, "a", "y"], [3.5, "b", "x"], [4.5, "a", "y"]]
    for name, content in (("train.csv", rows), ("test.csv", [[5, "c", "y"], [6, "a", "x"]])):
        files.save_table(tmp_path / "mine" / name, content, ["size", "colour", "label"])
    dataset = files.read_data(f"table:{tmp_path / 'mine'}").dataset
    assert dataset.train_x.tolist() == [[1.5, 0, 1], [2.5, 1, 0], [3.5, 0, 1], [4.5, 1, 0]]
    assert dataset.test_x.tolist() == [[5, 0, 0], [6, 1, 0]]  # a colour that no training row has is none of them
    assert (dataset.train_y.tolist(), dataset.test_y.tolist()) == ([0, 1, 0, 1], [1, 0])


def test_numbers_in_a_test_table_where_texts_were_learned(tmp_path: Path) -> None:
    for name, content in (("train.csv", [["a", "x"], ["b", "y"]]), ("test.csv", [[1, "x"], [2, "y"]])):
        files.save_table(tmp_path / "mine" / name, content, ["code", "label"])
    assert files.read_data(f"table:{tmp_path / 'mine'}").dataset.test_x.tolist() == [[0, 0], [0, 0]]


def test_other_separators_and_a_byte_order_mark(tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "comma.csv")
    other = tmp_path / "semicolon.csv"
    other.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b",", b" ; "))
    assert files.read_data(other).user_data.fingerprint == files.read_data(table).user_data.fingerprint


def test_parquet_is_the_same_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = files.flowers()
    columns = dict(zip(files.HEADER, map(list, zip(*rows, strict=True)), strict=True))
    columns["soil"] = pyarrow.array(columns["soil"]).dictionary_encode()
    parquet.write_table(pyarrow.table(columns), tmp_path / "flowers.parquet")
    there = files.read_data(tmp_path / "flowers.parquet", domain="year")
    assert (
        there.user_data.fingerprint
        == files.read_data(files.save_table(tmp_path / "flowers.csv"), domain="year").user_data.fingerprint
    )
    columns["sepal width"][7] = None
    parquet.write_table(pyarrow.table(columns), tmp_path / "flowers.parquet")
    with pytest.raises(SnclError, match="row 8 has no value in the column 'sepal width'"):
        files.read_data(tmp_path / "flowers.parquet")
