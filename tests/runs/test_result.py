"""``result.json``: what is written is what is read, and a damaged file is named in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl

from sncl.errors import SnclError
from sncl.runs.experiment import EXPERIMENT, read_described
from sncl.runs.result import RESULT, Result, read_result, write_result
from sncl.training.checkpoint import sealed, unsealed

KEYS = [
    *("stream", "method", "memory", "seed", "accuracy", "accuracy_matrix", "forgetting", "bwt", "fwt", "measures"),
    *("steps", "seconds", "memory_bytes_per_sample", "parameters", "active_fraction", "open_by_task", "open_by_layer"),
    *("accuracy_variants", "collapsed", "by_class", "scored_on", "manifest", "crc32"),
]
MANIFEST_KEYS = [
    *("protocol", "data", "versions", "device", "threads", "precision", "engine", "epochs", "tasks", "validation"),
    "settings",
]


def by_class(**changed: Any) -> dict[str, Any]:
    """Four samples of one class and one of another, three and one of them answered right; but for what is changed."""
    right = {"balanced_accuracy": 87.5, "majority": 80.0, "samples": [4, 1], "recall": [75.0, 100.0]}
    return right | {"confusion": [[3, 1], [0, 1]]} | changed


@pytest.mark.parametrize("facts", [by_class(), by_class(confusion=None)])
def test_what_is_said_of_classes_is_read_and_older_files_say_nothing(runs: Path, facts: dict[str, Any]) -> None:
    stored = unsealed(json.loads((runs / "er-0" / RESULT).read_text()))
    found = Result.from_json(stored | {"by_class": facts})
    assert found.by_class is not None and found.to_json()["by_class"] == facts
    assert (found.balanced_accuracy, found.majority) == (87.5, 80.0)
    del stored["by_class"]
    older = Result.from_json(stored)
    assert (older.by_class, older.balanced_accuracy, older.majority) == (None, None, None)
    assert older.to_json().keys() == stored.keys()


@pytest.mark.parametrize("name", ["er-0", "sncl-0", "icarl-0"])
def test_what_is_written_is_what_is_read(runs: Path, tmp_path: Path, name: str) -> None:
    text = (runs / name / RESULT).read_text()
    facts = json.loads(text)
    assert list(facts) == KEYS and list(facts["manifest"]) == MANIFEST_KEYS
    result = read_result(runs / name / RESULT)
    write_result(tmp_path / RESULT, result)
    assert (tmp_path / RESULT).read_text() == text
    whole, (first, *_) = result.to_json(), result.measures
    assert "accuracy_matrix" not in facts["measures"][first]  # it is at the top
    del whole["measures"][first]["accuracy_matrix"]
    assert json.dumps(sealed(whole)) == json.dumps(facts)
    assert result.accuracy == facts["accuracy"] and result.forgetting == facts["forgetting"]
    assert result.manifest.settings == facts["manifest"]["settings"]


def test_names_are_kept_where_there_are_any(runs: Path) -> None:
    facts = unsealed(json.loads((runs / "er-0" / RESULT).read_text())) | {
        "class_names": ["a", "b"],
        "task_names": ["c"],
    }
    result = Result.from_json(facts)
    assert (result.class_names, result.task_names) == (["a", "b"], ["c"])
    assert Result.from_json(result.to_json()) == result
    assert {key: result.to_json()[key] for key in ("class_names", "task_names")} == {
        "class_names": ["a", "b"],
        "task_names": ["c"],
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stream": None}, "'stream' is missing or of the wrong kind"),
        ({"measures": {}}, "it holds no measures"),
        ({"measures": {"class_il": {}}}, "'accuracy' is missing"),
        ({"accuracy_matrix": None}, "'accuracy_matrix' is missing"),
        ({"manifest": None}, "'manifest' is missing"),
        ({"manifest": {}}, "'protocol' is missing"),
        ({"accuracy": 3}, "'accuracy' is not that of its measures"),
        ({"accuracy_matrix": [[1.0], [1.0, 2.0]]}, "it holds no matrix of accuracies"),
        ({"by_class": []}, "it holds no result"),
        ({"by_class": {}}, "'balanced_accuracy' is missing"),
        ({"by_class": by_class(samples=[0, 0])}, "'by_class' has no numbers of samples"),
        ({"by_class": by_class(samples=[4, 1, 1])}, "'by_class' has no numbers of samples"),
        ({"by_class": by_class(samples=[4.0, 1])}, "'by_class' has no numbers of samples"),
        ({"by_class": by_class(recall=[75.0, "all"])}, "'by_class' has a recall that is no percentage"),
        ({"by_class": by_class(recall=[75.0, 101.0])}, "'by_class' has a recall that is no percentage"),
        ({"by_class": by_class(recall=[75.0, None])}, "'by_class' has a confusion matrix of other samples"),
        ({"by_class": by_class(confusion=[[3, 1], [0, True]])}, "'by_class' has no confusion matrix"),
        ({"by_class": by_class(confusion=[[3, 1], [0]])}, "'by_class' has no confusion matrix"),
        ({"by_class": by_class(confusion=[[3, 1], [1, 0]])}, "'by_class' has a confusion matrix of other samples"),
        ({"by_class": by_class(confusion=[[3, 1]])}, "'by_class' has a confusion matrix of other samples"),
        ({"by_class": by_class(balanced_accuracy=80.0)}, "'by_class' has accuracies of other samples"),
        ({"by_class": by_class(majority=50)}, "'by_class' has accuracies of other samples"),
        ({"by_class": by_class(majority=50, confusion=None)}, "'by_class' has accuracies of other samples"),
    ],
)
def test_a_damaged_file_is_named(runs: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / RESULT
    path.write_text(json.dumps(sealed(unsealed(json.loads((runs / "er-0" / RESULT).read_text())) | changes)))
    with pytest.raises(SnclError, match=f"result.json is damaged: {words}.*; move it away"):
        read_result(path)


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RESULT).write_text(text)
    with pytest.raises(SnclError, match=r"result\.json is damaged"):
        read_result(tmp_path / RESULT)


@pytest.mark.parametrize("matrix", [[], [[1.0], [1.0, 2.0]], [["x"]], [3]])
def test_a_matrix_that_is_none_is_refused(runs: Path, matrix: Any) -> None:
    facts = json.loads((runs / "er-0" / RESULT).read_text())
    facts["measures"]["class_il"]["accuracy_matrix"] = matrix
    with pytest.raises(SnclError, match="it holds no matrix of accuracies"):
        Result.from_json(facts)


# --- the checksum ------------------------------------------------------------------------------------------------

CHANGED = "is damaged: it was changed after it was written, so that its checksum does not fit; "


def test_an_edited_number_is_noticed_and_what_to_do_is_said(sncl: Sncl, tmp_path: Path) -> None:
    command = ("train", "--stream", "seq-digits", "--method", "er", "--tasks", "3", "--epochs", "1", "--device", "cpu")
    command += ("--out", "run", "--json")
    first = sncl(*command).json()
    path, accuracy = tmp_path / "run" / RESULT, first["accuracy"]["class_il"]
    text = path.read_text()
    edited = text.replace(repr(accuracy), "100.0")  # everywhere, so that nothing contradicts it
    assert edited != text
    path.write_text(edited)
    for words in (command, ("report", "run")):
        done = sncl(*words)
        assert done.code == 2 and done.out == ""
        assert "result.json " + CHANGED + "move it away to have it written again" in " ".join(done.err.split())
    path.unlink()
    assert sncl(*command).json()["accuracy"] == first["accuracy"]


def test_an_edited_description_is_noticed(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "er-0", folder)
    text = (folder / EXPERIMENT).read_text()
    (folder / EXPERIMENT).write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(SnclError, match="experiment.json " + CHANGED + "bring back the file as it was"):
        read_described(folder)


@pytest.mark.parametrize("name", [RESULT, EXPERIMENT])
def test_files_without_a_checksum_and_in_another_layout_are_read(runs: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "er-0", folder)
    expected = read_result(folder / RESULT), read_described(folder)
    facts = json.loads((folder / name).read_text())
    for content in (facts, unsealed(facts)):
        (folder / name).write_text(json.dumps(content, indent=1, sort_keys=True))
        assert (read_result(folder / RESULT), read_described(folder)) == expected


@pytest.mark.parametrize("checksum", ["00000000", None, 3, [], {}])
def test_another_checksum_does_not_fit(checksum: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        unsealed({"accuracy": 90.58, "crc32": checksum})


def test_a_result_is_shown_in_one_line(runs: Path) -> None:
    found = read_result(runs / "er-0" / RESULT)
    accuracy = f"class_il {found.accuracy['class_il']:.2f} %, task_il {found.accuracy['task_il']:.2f} %"
    assert repr(found) == f"Result(er on seq-digits, memory 30, seed 0: {accuracy}, forgetting {found.forgetting:.2f})"
    assert repr(found.main) == f"Measures({found.accuracy['class_il']:.2f} % on 3 tasks)"
