"""A person's own files as a stream of the command line: the same reports and guarantees as the benchmarks have."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import user_files as files
from command_line import Done, Sncl

from sncl.bench.subjects import subject
from sncl.methods.table import METHODS
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.streams.user.data import read
from sncl.streams.user.identity import UserData
from sncl.streams.user.spec import parse_spec
from sncl.training.checkpoint import read_checkpoint, read_json
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT

CPU = ["--device", "cpu"]
AS_DIGITS = ["lr=0.1", "batch_size=16", "replay=32", "alpha=0.5", "beta=1.0", "gamma=0.3"]
AS_DIGITS += ["ema=0.99", "clip=0", "start=0.5", "fill=0.3"]


def train(sncl: Sncl, stream: str | Path, *options: str | Path, method: str = "er") -> Done:
    return sncl("train", "--stream", str(stream), "--method", method, *CPU, *options)


def refused(done: Done, *words: str) -> bool:
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err
    return True


def user_data(path: Path, **options: Any) -> UserData:
    asked = parse_spec(str(path), **options)
    assert asked is not None
    return read(asked).user_data


# --- exactly the built-in stream ---------------------------------------------------------------------------------


def test_the_digits_as_files_are_the_built_in_stream(sncl: Sncl, tmp_path: Path) -> None:
    """Numbers, log and every weight: arrays and images of the digits train as ``seq-digits`` does, bit for bit."""
    options = [word for setting in AS_DIGITS for word in ("--set", setting)]
    options += ["--memory", "60", "--epochs", "1", "--split", "5x2", "--json"]
    archive, images = files.save_digits(tmp_path / "digits.npz"), files.save_images(tmp_path / "pictures")
    streams = {"built-in": "seq-digits", "arrays": str(archive), "images": f"folder:{images}"}
    results = {
        name: train(sncl, stream, *options, "--out", tmp_path / name, method="sncl").json()
        for name, stream in streams.items()
    }
    tensors = {name: read_checkpoint(tmp_path / name / CHECKPOINT)[0] for name in streams}
    for name in ("arrays", "images"):
        assert results[name]["measures"] == results["built-in"]["measures"]
        assert (tmp_path / name / LOG).read_bytes() == (tmp_path / "built-in" / LOG).read_bytes()
        assert tensors[name].keys() == tensors["built-in"].keys()
        assert all(value.equal(tensors["built-in"][key]) for key, value in tensors[name].items())
        assert results[name]["class_names"] == [str(digit) for digit in range(10)]
    assert results["images"]["manifest"]["data"] == results["arrays"]["manifest"]["data"]
    assert not {"class_names", "task_names"} & results["built-in"].keys()


# --- what is said and what is left behind ------------------------------------------------------------------------


def test_a_table_says_how_it_was_understood(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    done = train(sncl, table, "--epochs", "1")
    assert done.code == 0
    for said in (
        "120 rows to learn from and 30 to test on",
        "3 classes: setosa, versicolor, virginica",
        "cut by classes",
        "target is the column 'kind' (--target names another)",
        "one-hot: soil",
        "no test set: 20% of each class",
        "2 tasks (split 2x2, the last of 1), 1 epoch, network mlp",
    ):
        assert said in done.err
    (folder,) = (tmp_path / "runs").glob("table-*")  # and, where that took a while, a hidden file
    assert folder.name.startswith("table-flowers.csv-er-24-seed0-")  # a fifth of the rows, less than 200
    result = read_json(folder / "result.json")
    assert result["class_names"] == ["setosa", "versicolor", "virginica"]
    assert set(result["accuracy"]) == {"class_il", "task_il"}
    assert result["manifest"]["data"] == user_data(table).fingerprint
    assert str(tmp_path) not in json.dumps(read_checkpoint(folder / CHECKPOINT)[1])  # where data lie decides nothing


def test_each_cut_is_scored_in_its_way(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    page = tmp_path / "page.html"
    by_domain = train(sncl, table, "--domain", "year", "--epochs", "1", "--json", "--report", page)
    assert "task 2: 2021" in page.read_text()
    assert "cut by domain: 2020, 2021" in by_domain.err
    result = by_domain.json()
    assert (result["stream"], set(result["accuracy"])) == ("table:flowers.csv by domain", {"domain_il"})
    assert (len(result["accuracy_matrix"]), result["task_names"]) == (2, ["2020", "2021"])
    uncut = train(sncl, table, "--cut", "none", "--json", "--set", "batch_size=50").json()
    assert (uncut["stream"], set(uncut["accuracy"])) == ("table:flowers.csv uncut", {"gcl"})
    assert (uncut["steps"], uncut["forgetting"]) == (3, None)  # 120 rows, once


def test_classes_per_task(sncl: Sncl, tmp_path: Path) -> None:
    archive = files.save_digits(tmp_path / "digits.npz")
    done = train(sncl, archive, "--classes-per-task", "4", "--epochs", "1", "--json", method="sgd")
    assert "3 tasks (split 3x4, the last of 2)" in done.err
    assert len(done.json()["accuracy_matrix"]) == 3
    fewer = train(sncl, archive, "--split", "2x3", "--epochs", "1", "--json", method="sgd")
    assert "2 tasks (split 2x3: the first 6 of 10 classes)" in fewer.err
    built_in = train(sncl, "seq-digits", "--classes-per-task", "5", "--epochs", "1", "--json", method="sgd")
    assert built_in.json()["manifest"]["settings"]["split"] == "2x5"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_a_table(tmp_path: Path, method: str) -> None:
    """With the settings nobody tuned: the flowers are easy, and all but chance is to be learned of the last task."""
    data = user_data(files.save_table(tmp_path / "flowers.csv"))
    result = perform(
        plan("", method, epochs=2, device="cpu", settings={"width": "16"}, user_data=data), tmp_path / "run"
    )
    assert result.stream == "table:flowers.csv"
    assert next(iter(result.accuracy.values())) > 40
    assert result.collapsed == []


@pytest.mark.parametrize("augment", ["crop-flip", "strong"])
def test_colour_images_get_convolutions(sncl: Sncl, tmp_path: Path, augment: str) -> None:
    folder = files.save_small_images(tmp_path / "zoo", mode="RGB")
    options = [
        "--size",
        "8",
        "--epochs",
        "1",
        "--set",
        "width=2",
        "--set",
        f"augment={augment}",
        "--set",
        "batch_size=4",
    ]
    done = train(sncl, f"folder:{folder}", *options, "--threads", "1", "--json")
    assert "8 rows to learn from and 2 to test on, RGB 8 x 8, 2 classes: ape, bee" in done.err
    assert "network resnet18" in done.err
    assert done.json()["manifest"]["settings"]["augment"] == augment


# --- reports, analyses, tuning, bench ----------------------------------------------------------------------------


def test_reports_and_analyses_call_classes_by_their_names(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    options = ["--seeds", "2", "--epochs", "1", "--out", tmp_path / "runs", "--keep-tasks"]
    assert train(sncl, table, *options, "--report", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "class versicolor" in page and "class 1" not in page
    found = sncl("analyze", "tsne", tmp_path / "runs" / "seed-0", "--task", "1", "--json", *CPU).json()
    assert set(found["runs"][0]["after_stream"]["labels"]) == {"setosa", "versicolor", "virginica"}
    moved = shutil.move(table, tmp_path / "elsewhere.csv")
    analyse = ["analyze", "calibration", tmp_path / "runs" / "seed-0", tmp_path / "runs" / "seed-1", "--json", *CPU]
    assert refused(sncl(*analyse), "table:flowers.csv", "no longer")
    assert sncl(*analyse, "--data", moved).json()["groups"][0]["seeds"] == [0, 1]


def test_images_in_the_memory_are_shown_by_name(sncl: Sncl, tmp_path: Path) -> None:
    folder = files.save_small_images(tmp_path / "zoo", each=10)
    page = tmp_path / "page.html"
    assert train(sncl, f"folder:{folder}", "--memory", "4", "--epochs", "1", "--report", page).code == 0
    assert "class ape: " in page.read_text()


def test_tuned_settings_are_found_again(sncl: Sncl, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    table = files.save_table(tmp_path / "flowers.csv")
    search = ["--trials", "2", "--seeds", "1", "--epochs", "1", "--search", "lr=0.05,0.2", "--workers", "1"]
    chosen = sncl("tune", "--stream", table, "--method", "er", *CPU, *search, "--validation", "0.2", "--json").json()
    text = Path(chosen["file"]).read_text()
    assert '["table:flowers.csv"]' in text and str(tmp_path) not in text
    done = train(sncl, table, "--epochs", "1", "--settings", chosen["file"], "--json").json()
    assert done["manifest"]["settings"]["lr"] == chosen["chosen"]["settings"]["lr"]


def test_bench_takes_a_step_on_ones_own_data(tmp_path: Path) -> None:
    data = user_data(files.save_arrays(tmp_path / "mine.npz"))
    learner, stream, batches = subject(plan("", "er", memory=50, device="cpu", user_data=data))
    x, y = next(batches)
    assert (stream.shape, x.shape, len(y)) == ((3,), (16, 3), 16)  # one task of one class has 16 rows
    assert learner.memory is not None and len(learner.memory) == 50


# --- the same run ------------------------------------------------------------------------------------------------


def test_changed_data_are_another_run(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    command = ("--epochs", "1", "--out", tmp_path / "run")
    first = train(sncl, table, *command, "--json").json()
    again = train(sncl, table, *command, "--json")
    assert "already finished" in again.err and again.json() == first
    rows = files.flowers()
    rows[0][0] += 0.1
    files.save_table(table, rows)
    assert refused(train(sncl, table, *command), "made with other data", "has changed since", "--out")
    assert train(sncl, table, "--epochs", "1").code == 0  # a folder of its own


def test_data_that_change_while_a_run_waits_are_noticed(tmp_path: Path) -> None:
    path = files.save_arrays(tmp_path / "mine.npz")
    planned = plan("", "sgd", device="cpu", user_data=user_data(path))
    files.save_arrays(path, lambda arrays: arrays.update(x=arrays["x"] + 1))
    with pytest.raises(Exception, match="no longer those that this run is about"):
        perform(planned, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def save_for(form: str, folder: Path) -> str:
    if form == "table":
        return str(files.save_table(folder / "flowers.csv"))
    if form == "npz":
        return str(files.save_digits(folder / "digits.npz"))
    return f"folder:{files.save_small_images(folder / 'zoo', ('ape', 'bee', 'cat'), each=12)}"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "npz", "folder"])
def test_killed_and_resumed(tmp_path: Path, form: str) -> None:
    """A real process, killed with SIGKILL in the middle, ends as one that was left alone."""
    stream = save_for(form, tmp_path)
    options = ["--stream", stream, "--method", "sncl", "--memory", "12", *CPU, "--set", "batch_size=4", "--tasks", "2"]
    command = [sys.executable, "-m", "sncl.cli", "train", *options, "--epochs", "2"]
    subprocess.run([*command, "--out", str(tmp_path / "alone")], check=True, capture_output=True)
    killed = tmp_path / "killed"
    at_every_step = [*command, "--out", str(killed), "--checkpoint", "0"]
    process = subprocess.Popen(at_every_step, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (killed / CHECKPOINT).exists():
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "result.json").exists()
    subprocess.run([*command, "--out", str(killed)], check=True, capture_output=True)
    one, other = (read_checkpoint(tmp_path / name / CHECKPOINT)[0] for name in ("alone", "killed"))
    assert one.keys() == other.keys() and all(value.equal(other[key]) for key, value in one.items())
    assert (killed / LOG).read_bytes() == (tmp_path / "alone" / LOG).read_bytes()


# --- what can go wrong -------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(sncl: Sncl, tmp_path: Path) -> None:
    for stream in ("folder:nowhere", "npz:nowhere.npz", "table:nowhere.csv", "nowhere.parquet"):
        assert refused(train(sncl, stream), "there is no", "nowhere")
    assert refused(train(sncl, "npz:"), "followed by a path")
    assert refused(train(sncl, "nowhere"), "there is no stream 'nowhere'", "seq-digits", "folder:PATH")
    (tmp_path / "pictures").mkdir()
    assert refused(train(sncl, "pictures"), "pictures holds no images in folders of classes")


def test_options_of_ones_own_data_are_for_ones_own_data(sncl: Sncl) -> None:
    for option in (["--cut", "none"], ["--target", "y"], ["--domain", "d"], ["--size", "8"]):
        assert refused(train(sncl, "seq-digits", *option), option[0], "folder:PATH")
    assert refused(sncl("bench", "--cut", "none"), "--stream")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--split", "3x2"], ("wants 6 classes", "has 3", "2x2")),
        (["--split", "3 by 2"], ("TASKSxCLASSES",)),
        (["--split", "2x1", "--set", "split=1x3"], ("--split", "--set split=")),
        (["--cut", "none", "--classes-per-task", "1"], ("--classes-per-task", "cut by classes")),
        (["--cut", "none", "--epochs", "3"], ("seen once", "--epochs")),
        (["--cut", "sideways"], ("--cut is one of classes, domain, none",)),
        (["--cut", "domain"], ("--domain COLUMN",)),
        (["--target", "colour"], ("no column 'colour'", "sepal length")),
        (["--domain", "kind"], ("the same column 'kind'",)),
        (["--size", "8"], ("--size is for folders",)),
        (["--set", "augment=crop-flip"], ("augment=crop-flip does not fit",)),
        (["--tasks", "3"], ("3 tasks", "1 to 2")),
        (["--memory", "500"], ("--memory 500", "120 samples")),
    ],
    ids=" ".join,
)
def test_options_that_do_not_fit(sncl: Sncl, tmp_path: Path, options: list[str], words: tuple[str, ...]) -> None:
    done = train(sncl, files.save_table(tmp_path / "flowers.csv"), *options)
    assert done.code == 2 and "error: " in done.err and "Traceback" not in done.err
    for word in words:
        assert word in done.err
    assert not list((tmp_path / "runs").glob("*/experiment.json"))


def test_methods_that_need_what_a_cut_has_not(sncl: Sncl, tmp_path: Path) -> None:
    table = files.save_table(tmp_path / "flowers.csv")
    assert refused(train(sncl, table, "--cut", "none", method="gem"), "no boundaries")
    assert refused(train(sncl, table, "--domain", "year", method="pnn"), "--cut classes")


Spoil = Callable[[dict[str, Any]], Any]


def spoilt(**changes: Any) -> Spoil:
    return lambda arrays: arrays.update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("y"), ("no array y", "allowed names are y, y_train", "labels")),
        (lambda a: a.pop("x"), ("no array x", "x_train")),
        (spoilt(labels=np.arange(40)), ("several arrays for y: y, labels",)),
        (spoilt(y=np.zeros(40, int)), ("only one class, '0'",)),
        (spoilt(y=np.arange(39)), ("'x' has 40 rows and 'y' has 39",)),
        (spoilt(y=np.linspace(0, 1, 40)), ("whole numbers or texts", "row 2")),
        (spoilt(y=np.array(["a"] * 39 + [""])), ("missing in row 40",)),
        (lambda a: a["x"].__setitem__((5, 1), np.nan), ("nan or infinity in row 6",)),
        (spoilt(x=np.zeros(40)), ("shape [40]", "[rows, columns]")),
        (spoilt(x=np.zeros((40, 5, 8, 8))), ("no axis of 1 or 3 channels",)),
        (spoilt(x=np.full((40, 8, 8), 256)), ("outside 0 .. 255",)),
        (spoilt(x=np.full((40, 2), "a")), ("inputs are numbers",)),
        (spoilt(x_test=np.zeros((2, 3))), ("has x_test but no test y",)),
        (spoilt(x_test=np.zeros((2, 4)), y_test=np.array([3, 7])), ("differ in the shape",)),
        (spoilt(x_test=np.zeros((3, 3)), y_test=np.array([3, 7, 9])), ("tests on the class '9'", "no training row")),
        (spoilt(x_test=np.zeros((2, 3)), y_test=np.array([3, 3])), ("no row to test on of the class '7'",)),
        (
            spoilt(y=np.array([3] * 39 + [7])),
            ("no row to test on of the class '7'; each needs two rows",),
        ),
        (spoilt(domain=np.zeros(40, int)), ("only one domain, '0'",)),
        (spoilt(domain=np.arange(3)), ("'domain' has 3",)),
    ],
)
def test_arrays_that_cannot_be_used(sncl: Sncl, tmp_path: Path, change: Spoil, words: tuple[str, ...]) -> None:
    path = files.save_arrays(tmp_path / "mine.npz", change)
    assert refused(train(sncl, path), *words)


def test_files_that_are_something_else(sncl: Sncl, tmp_path: Path) -> None:
    objects, text = tmp_path / "objects.npz", tmp_path / "text.npz"
    np.savez(objects, x=np.zeros((4, 2)), y=np.array([{}, [], "a", 1], dtype=object))
    text.write_text("x,y\n")
    assert refused(train(sncl, objects), "Python objects")
    assert refused(train(sncl, text), "no .npz file")
    assert refused(train(sncl, f"npz:{tmp_path}"), "is a folder", "folder:PATH")
    assert refused(train(sncl, f"table:{text}"), ".csv.gz, .tsv.gz or .parquet")
    assert refused(train(sncl, f"folder:{text}"), "is a file")


def with_cell(row: int, column: int, value: Any) -> files.Rows:
    rows = files.flowers()
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (with_cell(9, 6, " "), ("row 10", "'kind'")),
        (with_cell(2, 0, "5,1"), ("'sepal length' holds numbers", "'5,1' in row 3")),
        (with_cell(2, 0, "inf"), ("row 3", "'sepal length'")),
        (files.flowers()[:1], ("only one class",)),
        ([], ("no rows",)),
        ([[1.0, 2.0]], ("row 1 has 2 fields instead of 7",)),
        ([[*row[:6], "rare" if n == 7 else row[6]] for n, row in enumerate(files.flowers())], ("'rare'", "join it")),
    ],
)
def test_tables_that_cannot_be_used(sncl: Sncl, tmp_path: Path, rows: files.Rows, words: tuple[str, ...]) -> None:
    assert refused(train(sncl, files.save_table(tmp_path / "flowers.csv", rows)), *words)


def test_headers_that_cannot_be_used(sncl: Sncl, tmp_path: Path) -> None:
    twice = files.save_table(tmp_path / "twice.csv", header=["a", "a", "b", "c", "d", "e", "kind"])
    assert refused(train(sncl, twice), "names every column once", "a")
    several = files.save_table(tmp_path / "several.csv", header=["a", "b", "c", "d", "e", "label", "class"])
    assert refused(train(sncl, several), "label, class", "--target")


def test_images_that_cannot_be_used(sncl: Sncl, tmp_path: Path) -> None:
    folder = files.save_small_images(tmp_path / "zoo")
    (folder / "ape" / "broken.png").write_bytes(b"no image")
    (folder / "bee" / "cut.png").write_bytes((folder / "bee" / "0.png").read_bytes()[:50])
    assert refused(train(sncl, f"folder:{folder}"), "ape/broken.png")
    (folder / "ape" / "broken.png").unlink()
    assert refused(train(sncl, f"folder:{folder}"), "1 file", "bee/cut.png")
    (folder / "bee" / "cut.png").unlink()
    files.save_image(folder / "bee" / "wide.png", (9, 5))
    assert refused(train(sncl, f"folder:{folder}"), "different sizes", "9 x 5", "--size 32")
    assert train(sncl, f"folder:{folder}", "--size", "6", "--epochs", "1", "--set", "width=4").code == 0


def test_folders_that_cannot_be_used(sncl: Sncl, tmp_path: Path) -> None:
    one = files.save_small_images(tmp_path / "one", ("ape",))
    assert refused(train(sncl, f"folder:{one}"), "only one class, 'ape'")
    (tmp_path / "none").mkdir()
    assert refused(train(sncl, f"folder:{tmp_path / 'none'}"), "no images", "PATH/<class>/*.png")
    mixed = files.save_small_images(tmp_path / "mixed")
    files.save_image(mixed / "deep" / "cat" / "0.png")
    assert refused(train(sncl, f"folder:{mixed}"), "both in", "deep/cat")
    split = tmp_path / "split"
    files.save_small_images(split / "train")
    files.save_small_images(split / "test", ("ape", "bee", "yak"))
    assert refused(train(sncl, f"folder:{split}"), "tests on the class 'yak'")
    flat = files.save_small_images(tmp_path / "flat")
    assert refused(train(sncl, f"folder:{flat}", "--cut", "domain"), "<domain>/<class>")
