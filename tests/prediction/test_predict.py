"""``sncl predict``: what a run says of new files, with the preprocessing it learned with."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Done, Sncl
from short_runs import short
from used_runs import TEST_ROWS, gappy_flowers, read_csv, save_split, train_on
from user_files import HEADER, save_arrays, save_digits, save_image, save_small_images, save_table

import sncl as package
from sncl.prediction import sources
from sncl.prediction.writing import probability_columns
from sncl.runs.loading import load_run
from sncl.runs.perform import perform


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table in ``data`` and a run on it in ``run``."""
    folder = tmp_path_factory.mktemp("table")
    save_split(folder / "data", gappy_flowers())
    train_on(f"table:{folder / 'data'}", folder / "run")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    train_on(f"folder:{save_small_images(folder / 'data')}", folder / "run", memory=4)
    return folder


def predicted(done: Done) -> list[str]:
    assert done.code == 0, done.err
    return [row["prediction"] for row in read_csv(done.out)]


def same_chances(first: Done, second: Done) -> bool:
    """The same answers; how many rows are computed at once moves the last digits."""
    one, other = read_csv(first.out), read_csv(second.out)
    places = [name for name in other[0] if name not in ("file", "prediction")]
    return [row["prediction"] for row in one] == [row["prediction"] for row in other] and np.allclose(
        *([[float(row[name]) for name in places] for row in rows] for rows in (one, other)), atol=1e-5
    )


def test_the_test_rows_are_predicted_as_the_run_does(sncl: Sncl, table: Path) -> None:
    done = sncl("predict", table / "run", table / "data" / "test.csv")
    run = load_run(table / "run", device="cpu")
    said = predicted(done)
    right = 0
    for task, phase in enumerate(run.stream.test_phases):
        x, y = run.stream.test(task)
        wanted = run.learner.predict(x)
        assert [said[row] for row in phase.rows.tolist()] == [run.stream.names[place] for place in wanted.tolist()]
        right += int((wanted == y).sum())
    assert done.err == f"accuracy {100 * right / TEST_ROWS:.2f} % on {TEST_ROWS} rows that have a label\n"


def test_new_rows_without_a_target_with_new_categories_in_any_file(
    sncl: Sncl, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns in another order, a column more, a category that was never there, gaps; CSV, gzipped and Parquet."""
    rows = [
        [row[5], "mud" if number % 3 == 0 else row[4], *row[:4], "more"] for number, row in enumerate(gappy_flowers())
    ]
    header = ["year", "soil", *HEADER[:4], "remark"]
    new = save_table(tmp_path / "new.csv", rows, header)
    first = sncl("predict", table / "run", new, "--probabilities")
    assert first.err == "note: not used: the columns 'remark'\n"
    said = read_csv(first.out)
    assert list(said[0]) == ["prediction", "setosa", "versicolor", "virginica"] and len(said) == len(rows)
    for row in said:
        chances = {name: float(row[name]) for name in list(row)[1:]}
        assert sum(chances.values()) == pytest.approx(1, abs=1e-4)
        assert chances[row["prediction"]] == max(chances.values())
    with gzip.open(tmp_path / "new.csv.gz", "wt") as file:
        file.write(new.read_text())
    monkeypatch.setattr(sources, "MOST_ROWS", 7)  # in parts
    assert same_chances(sncl("predict", table / "run", tmp_path / "new.csv.gz", "--probabilities"), first)
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    columns["sepal width"] = [None if value == "" else value for value in columns["sepal width"]]
    columns["soil"] = [None if value == "" else value for value in columns["soil"]]
    parquet.write_table(arrow.table(columns), tmp_path / "new.parquet")
    assert same_chances(sncl("predict", table / "run", tmp_path / "new.parquet", "--probabilities"), first)


def test_only_the_classes_of_a_task_compete(sncl: Sncl, table: Path) -> None:
    data = table / "data" / "test.csv"
    assert set(predicted(sncl("predict", table / "run", data, "--task", "1"))) <= {"setosa", "versicolor"}
    said = read_csv(sncl("predict", table / "run", data, "--task", "2", "--probabilities").out)
    assert all((row["prediction"], row["setosa"], row["virginica"]) == ("virginica", "0", "1") for row in said)
    assert "--task is a number from 1 to 2, not 3" in sncl("predict", table / "run", data, "--task", "3").err


def test_a_method_that_must_be_told_the_task(sncl: Sncl, tmp_path: Path) -> None:
    perform(short(method="pnn", settings={"width": "8"}), tmp_path / "run")
    run = load_run(tmp_path / "run", device="cpu")
    x, _ = run.stream.test(1)
    np.save(tmp_path / "new.npy", x.numpy())
    done = sncl("predict", tmp_path / "run", tmp_path / "new.npy")
    assert (done.code, done.out) == (2, "") and "PNN predicts only when told the task: give --task" in done.err
    logits = run.learner.logits(x, 1)[:, 2:4]
    wanted = [str(2 + place) for place in logits.argmax(1).tolist()]
    assert predicted(sncl("predict", tmp_path / "run", tmp_path / "new.npy", "--task", "2")) == wanted


def test_the_data_of_the_run_are_not_needed(sncl: Sncl, table: Path, tmp_path: Path) -> None:
    shutil.copytree(table / "run", tmp_path / "run")
    path = tmp_path / "run" / "experiment.json"
    facts = json.loads(path.read_text())
    assert "data" in facts["path"]
    moved = tmp_path / "moved.csv"
    shutil.copy(table / "data" / "test.csv", moved)
    hidden = table / "data"
    os.rename(hidden, table / "hidden")
    try:
        assert len(predicted(sncl("predict", tmp_path / "run", moved))) == TEST_ROWS
    finally:
        os.rename(table / "hidden", hidden)


def test_arrays(sncl: Sncl, tmp_path: Path) -> None:
    rows = save_arrays(tmp_path / "rows.npz")
    folder = train_on(rows, tmp_path / "rows")
    done = sncl("predict", folder, rows)
    with np.load(rows) as file:  # left open, it is closed by whichever test garbage is collected in
        arrays = dict(file)
    np.save(tmp_path / "x.npy", np.asfortranarray(arrays["x"]))
    np.savez(tmp_path / "only.npz", anything=arrays["x"])
    for name in ("x.npy", "only.npz"):
        assert sncl("predict", folder, tmp_path / name).out == done.out
    right = np.mean([int(said) == wanted for said, wanted in zip(predicted(done), arrays["y"], strict=True)])
    assert done.err == f"accuracy {100 * right:.2f} % on 40 rows that have a label\n"
    digits = train_on(save_digits(tmp_path / "digits.npz"), tmp_path / "digits")
    run = load_run(digits, device="cpu")
    with np.load(tmp_path / "digits.npz") as file:
        test = file["x_test"]
    np.save(tmp_path / "test.npy", test)
    said = predicted(sncl("predict", digits, tmp_path / "test.npy"))
    assert said == [str(each) for each in run.learner.predict(torch.from_numpy(test)).tolist()]


def test_images_alone_and_in_folders(
    sncl: Sncl, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    for name in ("b/2.png", "b/10.png", "a.png", "b/c/1.png", ".hidden/x.png"):
        save_image(new / name, colour=len(name) * 20)
    (new / "notes.txt").write_text("no image")
    done = sncl("predict", pictures / "run", new, "--probabilities")
    rows = read_csv(done.out)
    assert list(rows[0]) == ["file", "prediction", "ape", "bee"]
    assert [row["file"] for row in rows] == ["a.png", "b/2.png", "b/10.png", "b/c/1.png"]
    learner = package.load(pictures / "run")
    assert learner.preprocessing is not None
    x = learner.preprocessing.inputs([new / row["file"] for row in rows])
    assert [row["prediction"] for row in rows] == [("ape", "bee")[place] for place in learner.predict(x).tolist()]
    single = read_csv(sncl("predict", pictures / "run", new / "b" / "2.png").out)
    assert single == [{"file": "2.png", "prediction": rows[1]["prediction"]}]
    save_image(new / "large.png", (30, 30))
    refused = sncl("predict", pictures / "run", new)
    assert refused.code == 2 and refused.out == "" and "30 x 30 pixels" in refused.err and "--size" in refused.err
    (new / "large.png").unlink()
    monkeypatch.setattr(sources, "IMAGES_AT_ONCE", 3)
    assert same_chances(sncl("predict", pictures / "run", new, "--probabilities"), done)


def test_json(sncl: Sncl, table: Path, tmp_path: Path) -> None:
    found = sncl("predict", table / "run", table / "data" / "test.csv", "--probabilities", "--json").json()
    assert (found["rows"], found["classes"]) == (TEST_ROWS, ["setosa", "versicolor", "virginica"])
    said = read_csv(sncl("predict", table / "run", table / "data" / "test.csv").out)
    assert [row["prediction"] for row in found["predictions"]] == [row["prediction"] for row in said]
    assert sum(found["predictions"][0]["probabilities"].values()) == pytest.approx(1)
    arguments = ("predict", table / "run", table / "data" / "test.csv", "-o", tmp_path / "out.csv", "--json")
    written = sncl(*arguments).json()
    assert "predictions" not in written and written["file"] == str(tmp_path / "out.csv")
    assert written["accuracy"] == found["accuracy"] is not None
    assert read_csv((tmp_path / "out.csv").read_text()) == said


def test_a_file_is_written_whole_or_not_at_all(sncl: Sncl, table: Path, tmp_path: Path) -> None:
    out, data = tmp_path / "out.csv", table / "data" / "test.csv"
    out.write_text("old")
    done = sncl("predict", table / "run", data, "-o", out)
    assert done.code == 2 and f"{out} is there already; --force replaces it" in done.err and out.read_text() == "old"
    rows = [*gappy_flowers(), [1, 2, 3, "no number", "clay", 2020, "setosa"]]
    spoiled = save_table(tmp_path / "spoiled.csv", rows)
    failed = sncl("predict", table / "run", spoiled, "-o", out, "--force")
    assert failed.code == 2 and out.read_text() == "old" and failed.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "spoiled.csv"]
    assert sncl("predict", table / "run", data, "-o", out, "--force").err.endswith(f"predictions: {out}\n")
    assert out.read_text() == sncl("predict", table / "run", data).out
    assert "a folder that exists" in sncl("predict", table / "run", data, "-o", tmp_path / "no" / "out.csv").err


def test_what_does_not_fit_is_one_line(sncl: Sncl, table: Path, pictures: Path, tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        done = sncl("predict", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        return done.err

    run = table / "run"
    assert "there is no" in refused(run, tmp_path / "nowhere.csv")
    assert "no run folder" in refused(tmp_path, table / "data" / "test.csv")
    assert "predicts for a table" in refused(run, pictures / "data")
    assert "predicts for images" in refused(pictures / "run", table / "data" / "test.csv")
    (tmp_path / "empty").mkdir()
    assert "holds no images" in refused(pictures / "run", tmp_path / "empty")
    few = save_table(tmp_path / "few.csv", [[1.0, "clay"]] * 3, ["sepal width", "soil"])
    assert "lacks the columns 'sepal length', 'petal length', 'petal width', 'year'" in refused(run, few)
    (tmp_path / "bad.npy").write_bytes(b"no array")
    assert "cannot be read as a .npy file: it is no array" in refused(pictures / "run", tmp_path / "bad.npy")
    np.save(tmp_path / "wide.npy", np.zeros((2, 9, 9), dtype=np.uint8))
    assert "shape [1, 5, 6] in this model, and here it has [1, 9, 9]" in refused(
        pictures / "run", tmp_path / "wide.npy"
    )


def test_names_of_classes_are_quoted_and_no_column_is_there_twice(sncl: Sncl, tmp_path: Path) -> None:
    names = ["prediction", '=1+"x", y']
    rows = [[float(number % 2), number % 5, names[number % 2]] for number in range(40)]
    folder = train_on(save_table(tmp_path / "odd.csv", rows, ["a", "b", "kind"]), tmp_path / "run")
    text = sncl("predict", folder, tmp_path / "odd.csv", "--probabilities").out
    found = list(csv.reader(text.splitlines()))
    assert found[0] == ["prediction", '=1+"x", y', "class prediction"]
    assert {row[0] for row in found[1:]} <= set(names) and all(len(row) == 3 for row in found)
    assert probability_columns(["prediction", "class prediction", "file"], ["file", "prediction"]) == [
        "class class prediction",
        "class prediction",
        "class file",
    ]


def test_a_reader_that_has_seen_enough_is_no_error(table: Path) -> None:
    rows = gappy_flowers() * 100
    many = save_table(table / "many.csv", rows)
    command = [sys.executable, "-m", "sncl.cli", "predict", str(table / "run"), str(many), "--probabilities"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("prediction,")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
