"""Tables as people have them, on the command line: what was refused or misread is learned, and said in a line."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
import user_files as files
from command_line import Done, Sncl
from mixed_tables import fruit, save_fruit

from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_checkpoint
from sncl.training.events import Moment
from sncl.training.run import CHECKPOINT

SHORT = ("--method", "er", "--device", "cpu", "--epochs", "1")


def train(sncl: Sncl, stream: Path, *options: object) -> Done:
    done = sncl("train", "--stream", stream, *SHORT, *options)
    assert done.code == 0, done.err
    return done


def test_dates_gaps_and_ids_are_learned(sncl: Sncl, tmp_path: Path) -> None:
    table = save_fruit(tmp_path / "fruit.csv", fruit())
    done = train(sncl, table)
    for said in (
        "5 columns, 4 classes",
        "one-hot: colour",
        "'picked' holds dates",
        "'row' is left out: its texts are nearly all different (--number or --category keeps it, --ignore says so",
    ):
        assert said in done.err


def test_columns_are_left_out_or_called_what_they_are(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    out = tmp_path / "run"
    told = ("--ignore", "sepal width,petal width", "--ignore", "soil", "--category", "year", "--number", "sepal length")
    done = train(sncl, table, *told, "--out", out)
    assert "inputs are sepal length, petal length, year" in done.err and "one-hot: year" in done.err
    identity = json.loads((out / "experiment.json").read_text())["user_data"]
    assert identity["ignore"] == ["sepal width", "petal width", "soil"] and identity["categories"] == ["year"]
    assert "already finished" in train(sncl, table, *told, "--out", out).err
    assert sncl("analyze", "calibration", out, "--device", "cpu", "--json").code == 0  # the data are read in this way
    other = sncl("train", "--stream", table, *SHORT, "--out", out)
    assert other.code == 2 and "--out" in other.err
    for options, words in (
        (("--ignore", "colour"), "--ignore: there is no column 'colour'; there are sepal length"),
        (("--category", "kind"), "--category: there is no column 'kind'"),
        (
            ("--number", "soil"),
            "'soil' holds numbers, but 'loam' in row 1; put it right, leave it empty, or name the column in --category",
        ),
    ):
        wrong = sncl("train", "--stream", table, *SHORT, *options)
        assert wrong.code == 2 and words in wrong.err, wrong.err
    benchmark = sncl("train", "--stream", "seq-digits", *SHORT, "--ignore", "x")
    assert benchmark.code == 2 and "--ignore is for user data" in benchmark.err


def test_a_run_on_a_table_that_is_cut_off_ends_the_same(tmp_path: Path) -> None:
    table = save_fruit(tmp_path / "fruit.csv", fruit())
    data = files.read_data(table, ignore=["row"], categories=["ripe"]).user_data
    experiment = plan("", "sncl", device="cpu", epochs=2, settings={"batch_size": "8"}, user_data=data)
    moments = []

    def stop(moment: Moment) -> None:
        moments.append(moment)
        if len(moments) == 15:
            raise KeyboardInterrupt

    perform(experiment, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        perform(experiment, tmp_path / "parts", watch=stop, checkpoint_seconds=0)
    assert not (tmp_path / "parts" / "result.json").exists()
    perform(experiment, tmp_path / "parts")
    whole, parts = (read_checkpoint(tmp_path / name / CHECKPOINT)[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(value.equal(parts[name]) for name, value in whole.items())


def numbered(path: Path, header: bool = True, comma: bool = False) -> Path:
    """Three columns of numbers that tell two classes apart."""
    numbers = random.Random(0)
    rows = [[numbers.gauss(3 * (row % 2), 1) for _ in range(3)] for row in range(80)]
    lines = [[*(f"{value:.3f}" for value in row), "ab"[place % 2]] for place, row in enumerate(rows)]
    if comma:
        lines = [[cell.replace(".", ",") for cell in line] for line in lines]
    names = [["u", "v", "w", "kind"]] if header else []
    text = "\n".join((";" if comma else ",").join(line) for line in [*names, *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.csv", {}, "3 columns, 2 classes: a, b"),
        ("a.csv.gz", {}, "3 columns, 2 classes: a, b"),
        ("a.csv", {"header": False}, "the first line holds data, so columns are called x1 to x4"),
        ("a.csv", {"comma": True}, "decimal commas in u, v, w"),
    ],
)
def test_files_that_were_misread_or_refused(
    sncl: Sncl, tmp_path: Path, name: str, options: dict[str, bool], said: str
) -> None:
    done = train(sncl, numbered(tmp_path / name, **options), "--cut", "none", "--json")
    assert "64 rows to learn from and 16 to test on, 3 columns" in done.err  # no row became names, no number a text
    assert said in done.err


def test_an_encoding_is_said_and_a_spreadsheet_is_answered_with_advice(sncl: Sncl, tmp_path: Path) -> None:
    rows = [[["grün", "weiß"][number % 2], number % 5, number % 2] for number in range(40)]
    path = files.save_table(tmp_path / "a.csv", rows, ["farbe", "n", "y"])
    path.write_bytes(path.read_text().encode("latin-1"))
    assert "the file is no UTF-8, and is read as Windows-1252" in train(sncl, path).err
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    refused = sncl("train", "--stream", tmp_path / "a.xlsx", *SHORT)
    assert refused.code == 2 and "save the sheet as CSV" in refused.err


def test_a_majority_is_pointed_out(sncl: Sncl, tmp_path: Path) -> None:
    rows = [[number / 7, "no" if number % 20 else "yes"] for number in range(200)]
    skewed = files.save_table(tmp_path / "skewed.csv", rows, ["x", "kind"])
    assert "always saying 'no' would be right in 95% of the test rows" in train(sncl, skewed).err
    assert "always saying" not in train(sncl, files.save_table(tmp_path / "flowers.csv")).err


def test_a_class_with_one_row_is_answered_with_advice(sncl: Sncl, tmp_path: Path) -> None:
    rows = [[number, "rare" if number == 3 else "ab"[number % 2]] for number in range(40)]
    done = sncl("train", "--stream", files.save_table(tmp_path / "a.csv", rows, ["x", "kind"]), *SHORT)
    assert done.code == 2 and "of the class 'rare'; each needs two rows" in done.err and "join it" in done.err
