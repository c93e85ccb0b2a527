"""The user's tables: which columns are what, in CSV and Parquet; how rows are encoded is in test_encoding.py."""

import os
from pathlib import Path

import pytest
import user_files as files

import sncl
from sncl.errors import SnclError


def test_columns_of_a_table(tmp_path: Path) -> None:
    rows = [[1.5, "b", "x"], [2.5, "a", "y"], [3.5, "b", "x"], [4.5, "a", "y"]]
    for name, content in (("train.csv", rows), ("test.csv", [[5, "c", "y"], [6, "a", "x"]])):
        files.save_table(tmp_path / "mine" / name, content, ["size", "colour", "label"])
    dataset = files.read_data(f"table:{tmp_path / 'mine'}").dataset
    assert (dataset.train_y.tolist(), dataset.test_y.tolist()) == ([0, 1, 0, 1], [1, 0])
    stream = sncl.stream(f"table:{tmp_path / 'mine'}")  # a task is a class
    assert stream.x[:, 1:].tolist() == [first_of(17, place)[1:] for place in (1, 2, 1, 2)]  # b came first
    assert stream.test_x[:, 1:].tolist() == [[0.0] * 16, first_of(17, 2)[1:]]  # c was never learned


def first_of(width: int, place: int) -> list[float]:
    return [float(each == place) for each in range(width)]


def test_numbers_in_a_test_table_where_texts_were_learned(tmp_path: Path) -> None:
    for name, content in (("train.csv", [["a", "x"], ["b", "y"]]), ("test.csv", [[1, "x"], [2, "y"]])):
        files.save_table(tmp_path / "mine" / name, content, ["code", "label"])
    files.save_table(
        tmp_path / "mine" / "train.csv", [["a", "x"], ["a", "x"], ["b", "y"], ["b", "y"]], ["code", "label"]
    )
    assert not sncl.stream(f"table:{tmp_path / 'mine'}").test_x.any()


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
    assert sncl.stream(str(tmp_path / "flowers.parquet")).x.isfinite().all()
    columns["kind"][7] = None
    parquet.write_table(pyarrow.table(columns), tmp_path / "flowers.parquet")
    with pytest.raises(SnclError, match="the values of the target 'kind' are missing in row 8; fill it in or remove"):
        files.read_data(tmp_path / "flowers.parquet")


@pytest.mark.parametrize(
    "labels", [(2**53, 2**53 + 1), (2**63, 2**63 + 1), (-(2**60), 1 - 2**60), (10**25, 10**25 + 1)]
)
def test_large_whole_numbers_stay_different_labels(tmp_path: Path, labels: tuple[int, int]) -> None:
    rows = [[number, labels[number % 2]] for number in range(20)]
    dataset = files.read_data(files.save_table(tmp_path / "mine.csv", rows, ["x", "id"])).dataset
    assert dataset.names == tuple(map(str, sorted(labels)))
    assert [labels[number % 2] for number in range(20)].count(labels[0]) == 10
    as_input = files.save_table(tmp_path / "input.csv", [[labels[n % 2], n % 2] for n in range(20)], ["id", "y"])
    assert set(files.read_data(as_input).dataset.train_x.flatten().tolist()) == {float(label) for label in labels}


def test_labels_that_merge_are_refused(tmp_path: Path) -> None:
    rows = [[number, ["1e16", "9007199254740993"][number % 2]] for number in range(20)]
    with pytest.raises(SnclError, match=r"row 1 holds 1e.16, and floating-point numbers of this size merge"):
        files.read_data(files.save_table(tmp_path / "mine.csv", rows, ["x", "id"]))


def test_a_cell_too_long_for_an_array(tmp_path: Path) -> None:
    rows = [["a", number % 2] for number in range(2000)]
    rows[6][0] = "b" * 100_000
    with pytest.raises(SnclError, match="row 7 has 100000 characters in the column 'text', and at most 1000 are read"):
        files.read_data(files.save_table(tmp_path / "mine.csv", rows, ["text", "y"]))


def test_memory_is_asked_for_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[f"{number % 90}", "x" * (number % 90 + 1), number % 2] for number in range(900)]
    table = files.save_table(tmp_path / "mine.csv", texts, ["a", "text", "y"])
    for available, what in ((10**5, "reading .*mine.csv"), (5 * 10**5, "the column 'text'"), (10**6, "as 91 columns")):
        monkeypatch.setattr("sncl.tensors.room.available_memory", lambda available=available: available)
        with pytest.raises(SnclError, match=rf"{what}.* would take .* GiB of memory, .*; remove columns"):
            sncl.stream(str(table))


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.csv")  # reading it would wait for a writer
    with pytest.raises(SnclError, match=r"mine.csv is neither a file nor a folder"):
        files.read_data(tmp_path / "mine.csv")


def test_parquet_with_texts_that_are_no_utf8(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for kind in ("plain", "dictionary"):
        table = pyarrow.table({"text": ["aQQQ", "bQQQ"] * 10, "y": [0, 1] * 10})
        path = tmp_path / f"{kind}.parquet"
        parquet.write_table(
            table, path, compression="none", use_dictionary=kind == "dictionary", write_statistics=False
        )
        path.write_bytes(path.read_bytes().replace(b"QQQ", b"\xff\xfe\xff"))
        with pytest.raises(SnclError, match=rf"{kind}.parquet cannot be read as Parquet"):
            files.read_data(path)
