"""Uneven classes in a run: they are told in the result, the table and a warning, and can be made to count the same."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import user_files as files
from command_line import Sncl
from example_results import result
from run_folders import same_run
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, recall_score
from sklearn.utils.class_weight import compute_class_weight

from sncl.errors import SnclError
from sncl.evaluation.by_class import ByClass
from sncl.runs.loading import Trained
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT, read_result
from sncl.runs.summary import majority_warnings, results_table
from sncl.training.checkpoint import read_checkpoint
from sncl.training.events import Moment
from sncl.training.run import CHECKPOINT
from sncl.training.weighting import TaskWeights

UNEVEN = ByClass.of([85, 15], [60, 10], None)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.save_uneven(tmp_path_factory.mktemp("data") / "uneven.csv")


def answers_of(run: Trained) -> tuple[list[int], list[int]]:
    """Labels and answers of all test samples."""
    y, answers = [], []
    for task in range(run.stream.test_tasks):
        x, labels = run.stream.test(task)
        y += labels.tolist()
        answers += run.learner.predict(x, task).tolist()
    return y, answers


def test_a_result_says_what_scikit_learn_says_of_its_answers(runs: Path, plain: Trained) -> None:
    y, answers = answers_of(plain)
    found = read_result(runs / "er-0" / RESULT).by_class
    assert found is not None
    assert found.confusion == confusion_matrix(y, answers, labels=range(10)).tolist()
    recalls = recall_score(y, answers, labels=range(6), average=None)
    assert found.recall[:6] == pytest.approx((100 * recalls).tolist())
    assert found.recall[6:] == [None] * 4  # three tasks of two classes
    assert found.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(y, answers))
    assert found.majority == pytest.approx(100 * max(np.bincount(y)) / len(y))


@pytest.mark.parametrize("setting", ["none", "balanced"])
def test_a_finished_run_that_lost_its_result_says_the_same_again(uneven: Path, tmp_path: Path, setting: str) -> None:
    data = files.read_data(uneven).user_data
    experiment = plan(data.name, "er", epochs=1, device="cpu", settings={"class_weight": setting}, user_data=data)
    first = perform(experiment, tmp_path / "run")
    text = (tmp_path / "run" / RESULT).read_text()
    (tmp_path / "run" / RESULT).unlink()
    assert perform(experiment, tmp_path / "run") == first
    assert (tmp_path / "run" / RESULT).read_text() == text
    assert first.by_class is not None and first.by_class.samples == [70, 10]


def test_the_neutral_value_is_no_part_of_a_run(uneven: Path, tmp_path: Path) -> None:
    data = files.read_data(uneven).user_data
    for name, settings in {"without": {}, "neutral": {"class_weight": "none"}}.items():
        perform(plan(data.name, "er", epochs=1, device="cpu", settings=settings, user_data=data), tmp_path / name)
    assert same_run(tmp_path / "without", tmp_path / "neutral")
    tensors, described = read_checkpoint(tmp_path / "without" / CHECKPOINT)
    assert "class_weight" not in described["experiment"]["settings"] and "memory/rows/weight" not in tensors


def test_balanced_weights_are_scikit_learns_over_the_tasks_so_far(plain: Trained) -> None:
    stream = plain.stream
    weights, seen = TaskWeights(stream), []
    for task, phase in enumerate(stream.phases):
        seen += stream.y[phase.rows].tolist()
        classes = np.unique(seen)
        expected = compute_class_weight("balanced", classes=classes, y=np.array(seen))
        np.testing.assert_allclose(weights(task, torch.from_numpy(classes)).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("method", ["er", "sncl", "sgd"])
def test_balanced_weights_raise_the_recall_of_the_rare_class(
    sncl: Sncl, uneven: Path, tmp_path: Path, method: str
) -> None:
    command = ("train", "--stream", uneven, "--method", method, "--cut", "none", "--device", "cpu", "--json")
    plain, weighed = sncl(*command).json(), sncl(*command, "--set", "class_weight=balanced").json()
    assert weighed["manifest"]["settings"]["class_weight"] == "balanced"
    assert plain["class_names"] == ["no", "yes"]
    assert weighed["by_class"]["recall"][1] > plain["by_class"]["recall"][1] + 10
    assert weighed["by_class"]["balanced_accuracy"] > plain["by_class"]["balanced_accuracy"]


def test_an_interrupted_run_with_weights_ends_as_an_unbroken_one(uneven: Path, tmp_path: Path) -> None:
    data = files.read_data(uneven).user_data
    experiment = plan(data.name, "sncl", epochs=2, device="cpu", settings={"class_weight": "balanced"}, user_data=data)
    perform(experiment, tmp_path / "whole")

    def crash(moment: Moment) -> None:
        if moment.steps in (3, 12):
            raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            perform(experiment, tmp_path / "broken", watch=crash, checkpoint_seconds=0)
    perform(experiment, tmp_path / "broken")
    assert same_run(tmp_path / "whole", tmp_path / "broken")


def test_what_cannot_be_weighed_is_refused() -> None:
    with pytest.raises(SnclError, match="`class_weight` is one of none, balanced, not 'even'"):
        plan("seq-digits", "er", settings={"class_weight": "even"})
    with pytest.raises(SnclError, match="ICaRL takes no weights of samples"):
        plan("seq-digits", "icarl", settings={"class_weight": "balanced"})


def test_the_table_has_two_more_columns_where_classes_are_uneven() -> None:
    even = ByClass.of([50, 50], [40, 40], None)
    headings, cells = results_table([result(by_class=even), result("sncl")])
    assert headings[4:7] == ["Class-IL", "Task-IL", "forgetting"]  # as it always was
    other = ByClass.of([85, 15], [80, 5], None)
    results = [result(by_class=UNEVEN), result(seed=1, by_class=other), result("sncl", by_class=even), result("sgd")]
    headings, cells = results_table(results)
    assert headings[4:9] == ["Class-IL", "Task-IL", "balanced", "majority", "forgetting"]
    # mean recalls 68.627 and 63.725: mean 66.176, deviation 4.902 / sqrt(2)
    assert [row[6:8] for row in cells] == [["66.18 ± 3.47", "85.00"], ["–", "–"], ["–", "–"]]


def test_a_result_below_the_majority_is_said() -> None:
    low, high = result(by_class=UNEVEN), result(seed=1, by_class=ByClass.of([85, 15], [85, 3], None))
    assert majority_warnings([high, result("sncl")]) == []
    assert majority_warnings([low, high]) == [
        "ER is below the majority baseline with 1 of 2 seeds: 70.00 % of the test samples are answered right, and "
        "always answering '0' would get 85.00 %"
    ]


def test_a_run_below_the_majority_warns_in_one_line(sncl: Sncl, uneven: Path, tmp_path: Path) -> None:
    header, *rows = uneven.read_text().splitlines()
    in_order = tmp_path / "in_order.csv"
    in_order.write_text("\n".join([header, *sorted(rows, key=lambda row: row.endswith("yes"))]))  # the rare class last
    command = ("train", "--method", "sgd", "--device", "cpu", "--cut", "none", "--stream")
    bad = sncl(*command, in_order)
    lines = [line for line in bad.err.splitlines() if "majority" in line]
    assert bad.code == 0 and len(lines) == 1
    assert lines[0].startswith("warning: SGD is below the majority baseline: ")
    assert lines[0].endswith("and always answering 'no' would get 87.50 %")
    assert "GCL balanced majority forgetting" in " ".join(bad.out.split())
    assert "majority" not in sncl(*command, uneven).err


def test_result_files_are_plain_json(runs: Path) -> None:
    facts = json.loads((runs / "icarl-0" / RESULT).read_text())["by_class"]
    assert list(facts) == ["balanced_accuracy", "majority", "samples", "recall", "confusion"]
    assert sum(map(sum, facts["confusion"])) == sum(facts["samples"])
