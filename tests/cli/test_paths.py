"""Streams that are paths: what lies there is recognised without a prefix, and what is ambiguous is one clear line."""

import shutil
from pathlib import Path

import pytest
from command_line import Sncl
from user_files import save_arrays, save_image

from sncl.errors import SnclError
from sncl.streams.user.spec import parse_spec

TRAIN = ["train", "--stream", "seq-digits", "--method", "er", "--tasks", "1", "--epochs", "1", "--device", "cpu"]


def located(path: Path | str) -> tuple[str, str]:
    spec = parse_spec(str(path))
    assert spec is not None
    return spec.form, spec.path.name


@pytest.mark.parametrize(
    ("name", "form"),
    [("mine.csv", "table"), ("mine.CSV.gz", "table"), ("mine.tsv", "table"), ("m.parquet", "table"), ("m.npz", "npz")],
)
def test_a_file_is_known_by_its_name(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / name).touch()
    assert located(tmp_path / name) == (form, name)
    (tmp_path / "only").mkdir()
    shutil.move(tmp_path / name, tmp_path / "only" / name)
    assert located(tmp_path / "only") == (form, name)  # a folder around nothing else


def test_a_folder_is_known_by_what_lies_in_it(tmp_path: Path) -> None:
    for path in ("flat/a/1.png", "domains/d/a/1.JPG", "both/train/d/a/1.png"):
        save_image(tmp_path / path)
        assert located(tmp_path / path.split("/")[0]) == ("folder", path.split("/")[0])
    (tmp_path / "tables").mkdir()
    for name in ("train.csv", "test.csv"):
        (tmp_path / "tables" / name).write_text("x,y\n1,2\n")
    assert located(tmp_path / "tables") == ("table", "tables")


def test_what_could_be_two_things_is_refused(tmp_path: Path) -> None:
    save_image(tmp_path / "mixed/a/1.png")
    (tmp_path / "mixed" / "train.csv").touch()
    for name in ("a.csv", "b.npz"):
        (tmp_path / "several").mkdir(exist_ok=True)
        (tmp_path / "several" / name).touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "letter.docx").touch()
    for name, words in {
        "mixed": "holds train.csv and images in folders; say table:.*mixed or folder:.*mixed",
        "several": r"holds a\.csv, b\.npz; name one of them",
        "empty": "holds no images in folders of classes, no table and no arrays; known are .csv",
        "letter.docx": "is of no form that is read here; known are .csv",
    }.items():
        with pytest.raises(SnclError, match=words):
            parse_spec(str(tmp_path / name))


def test_a_folder_of_images_is_trained_on_without_a_prefix(sncl: Sncl, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for number in range(10):
            save_image(tmp_path / "pics" / label / f"{number}.png", colour=10 * number)
    done = sncl("train", "--stream", "pics", "--method", "er", "--epochs", "1", "--device", "cpu")
    assert done.code == 0 and "folder:pics: 16 rows to learn from and 4 to test on" in done.err


def test_a_benchmark_goes_before_a_folder_of_its_name(sncl: Sncl, tmp_path: Path) -> None:
    save_image(tmp_path / "seq-digits" / "a" / "1.png")
    done = sncl(*TRAIN)
    note = "note: seq-digits is the benchmark; for what lies here under that name say ./seq-digits\n"
    assert done.code == 0 and done.err.startswith(note)
    assert located("./seq-digits") == ("folder", "seq-digits")


def test_a_file_whose_suffix_was_left_out_is_suggested(sncl: Sncl, tmp_path: Path) -> None:
    save_arrays(tmp_path / "mine.npz")
    done = sncl("train", "--stream", "mine", "--method", "er")
    assert done.err == "error: there is no stream 'mine'; did you mean mine.npz? sncl list shows all\n"
