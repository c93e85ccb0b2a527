"""Tables in files of every form that people have: each is read as the plain one is, and what was noticed is said."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from sncl.errors import SnclError
from sncl.tables import read_columns, read_table

PLAIN = "size,colour,when,kind\n1.5,grün,2024-01-31,a\n-2,rot,2024-02-01,b\n1250.25,grün,2024-02-03,a\n"
NUMBERS = [1.5, -2.0, 1250.25]


def saved(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def decimal_commas(text: str) -> str:
    return text.replace(",", ";").replace("1.5", "1,5").replace("1250.25", "1.250,25")


FORMS: dict[str, tuple[str, bytes, list[str]]] = {
    "plain": ("a.csv", PLAIN.encode(), []),
    "gzipped": ("a.csv.gz", gzip.compress(PLAIN.encode(), mtime=0), []),
    "tabs": ("a.tsv", PLAIN.replace(",", "\t").encode(), []),
    "tabs in a csv": ("a.csv", PLAIN.replace(",", "\t").encode(), []),
    "bars": ("a.csv", PLAIN.replace(",", "|").encode(), ["separated by bars"]),
    "mark": ("a.csv", PLAIN.encode("utf-8-sig"), []),
    "windows": ("a.csv", PLAIN.replace("\n", "\r\n").encode("cp1252"), ["no UTF-8, and is read as Windows-1252"]),
    "utf-16": ("a.csv", PLAIN.encode("utf-16"), ["the file is UTF-16"]),
    "decimal commas": ("a.csv", decimal_commas(PLAIN).encode(), ["decimal commas in size"]),
    "quoted": ("a.csv", PLAIN.replace("grün", '"grün"').replace("1250.25", '" 1250.25 "').encode(), []),
    "thousands": ("a.csv", PLAIN.replace("1250.25", '"1,250.25"').encode(), ["separators of thousands in size"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_file(tmp_path: Path, form: str) -> None:
    name, content, notes = FORMS[form]
    columns, noticed = read_table(saved(tmp_path, name, content))
    assert list(columns) == ["size", "colour", "when", "kind"]
    assert columns["size"].tolist() == NUMBERS
    assert columns["colour"].tolist() == ["grün", "rot", "grün"]
    assert len(noticed) == len(notes) and all(part in line for part, line in zip(notes, noticed, strict=True))


def test_a_file_without_names(tmp_path: Path) -> None:
    columns, noticed = read_table(saved(tmp_path, "a.csv", PLAIN.partition("\n")[2]))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "x1": NUMBERS,
        "x2": ["grün", "rot", "grün"],
        "x3": ["2024-01-31", "2024-02-01", "2024-02-03"],
        "x4": ["a", "b", "a"],
    }
    assert noticed == ["the first line holds data, so columns are called x1 to x4"]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("p,x,n\np,x,s\ne,x,n\ne,y,s\np,y,s\n", ["x1", "x2", "x3"]),  # every text of the first line comes again
        ("0,1,2,kind\n5.1,3.5,1.4,a\n4.9,3.0,1.4,b\n", ["0", "1", "2", "kind"]),  # as pandas names columns
        ("2019,2020,2021\n5,3,1\n4,3,1\n", ["2019", "2020", "2021"]),
        ("5,3,1\n4,3,1\n5,4,0\n", ["x1", "x2", "x3"]),
        (",size,kind\n0,1.5,a\n1,2.5,b\n", ["index", "size", "kind"]),
        ("size,kind\n1.5,a\n,b\n", ["size", "kind"]),
        ("colour,kind\nred,a\nblue,b\n", ["colour", "kind"]),
        ("1;NA;x\n2;3;y\n?;4,5;x\n", ["x1", "x2", "x3"]),
    ],
)
def test_names_are_told_from_data(tmp_path: Path, content: str, names: list[str]) -> None:
    assert list(read_columns(saved(tmp_path, "a.csv", content))) == names


def test_missing_values_are_kept(tmp_path: Path) -> None:
    columns = read_columns(saved(tmp_path, "a.csv", "n,t,e\n1,a,\nNA,?,n/a\nnan,NULL,\n4, ,NaN\n"))
    assert [None if math.isnan(value) else value for value in columns["n"].tolist()] == [1.0, None, None, 4.0]
    assert columns["t"].tolist() == ["a", None, None, None]
    assert np.isnan(columns["e"]).all()


@pytest.mark.parametrize(
    ("cells", "separator", "expected"),
    [
        (["1,5", "2,25"], ";", [1.5, 2.25]),
        (["1,500", "2,250"], ";", [1.5, 2.25]),  # a comma of a decimal, where nothing says otherwise
        (["1,500,000", "2,250"], ";", [1500000.0, 2250.0]),
        (["1.500,5", "7"], ";", [1500.5, 7.0]),
        (["1,500", "2,250"], ",", [1500.0, 2250.0]),
        (["1,5", "2,25"], ",", ["1,5", "2,25"]),  # neither thousands nor, between commas, a decimal
        (["1_000", "2"], ";", ["1_000", "2"]),
    ],
)
def test_spellings_of_numbers(tmp_path: Path, cells: list[str], separator: str, expected: list[object]) -> None:
    lines = [f'"{cell}"{separator}a' for cell in cells]
    path = saved(tmp_path, "a.csv", "\n".join([f"n{separator}kind", *lines]))
    assert read_columns(path)["n"].tolist() == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", b"PK", "not .*a.xlsx; save the sheet as CSV"),
        ("a.txt", b"a,b\n1,2\n", r"a table is a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file"),
        ("a.csv", b"\x00\xff\x81\n\x00", "cannot be read as CSV .*; save it as UTF-8"),
        ("a.csv.gz", b"no gzip", "cannot be read as CSV"),
        ("a.csv.gz", gzip.compress(PLAIN.encode(), mtime=0)[:-9], "cannot be read as CSV"),
        ("a.csv", b"a,a\n1,2\n", "names every column once, but not a"),
        ("a.csv", b"a,\n1,2\n", "a column without a name"),
        ("a.csv", b"a,b\n1,2\n3\n", "row 2 has 1 fields instead of 2"),
        ("a.csv", b"a,b\n1,inf\n", "row 1 holds 'inf' in the column 'b'"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(SnclError, match=words):
        read_columns(saved(tmp_path, name, content))


def test_a_small_file_that_unpacks_to_more_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = saved(tmp_path, "a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 5_000_000))  # 20 MB in 20 kB
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 50 * 2**20)
    with pytest.raises(SnclError, match=r"reading .*a.csv.gz would take .* GiB of memory"):
        read_columns(bomb)


def test_parquet_keeps_kinds_and_gaps(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    stored = {
        "whole": pyarrow.array([1, None, 3]),
        "text": pyarrow.array(["a", None, " b "]),
        "coded": pyarrow.array(["u", "u", None]).dictionary_encode(),
        "truth": pyarrow.array([True, None, False]),
        "day": pyarrow.array([19000, None, 1], pyarrow.date32()),
        "nothing": pyarrow.array([None, None, None]),
    }
    parquet.write_table(pyarrow.table(stored), tmp_path / "a.parquet")
    columns = read_columns(tmp_path / "a.parquet")
    assert columns["whole"].tolist()[::2] == [1.0, 3.0] and np.isnan(columns["whole"][1])
    assert columns["text"].tolist() == ["a", None, "b"]
    assert columns["coded"].tolist() == ["u", "u", None]
    assert columns["truth"].tolist() == [True, None, False]
    assert columns["day"].astype("datetime64[D]").astype(str).tolist() == ["2022-01-08", "NaT", "1970-01-02"]
    assert np.isnan(columns["nothing"]).all()
    parquet.write_table(pyarrow.table({"list": [[1], [2]]}), tmp_path / "b.parquet")
    with pytest.raises(SnclError, match="'list' holds list"):
        read_columns(tmp_path / "b.parquet")
