"""A run that has collapsed says so, on its way and everywhere its numbers are shown; a healthy one never does."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Sncl
from example_results import result
from short_runs import short

from sncl.evaluation.collapse import Collapse
from sncl.methods.table import METHODS
from sncl.report import write_report
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT, Result, read_result
from sncl.runs.summary import COLLAPSE_NOTE, footnote, results_table
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.events import Moment
from sncl.training.run import CHECKPOINT

FALLEN = short(tasks=3, settings={"lr": "1.5"})  # ER; its losses stay numbers of a usual size
TRAIN = ["train", "--stream", "seq-digits", "--method", "er", "--memory", "30", "--tasks", "3", "--epochs", "1"]


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with an absurd step size."""
    folder = tmp_path_factory.mktemp("fallen") / "run"
    perform(FALLEN, folder)
    return folder


# --- a run -------------------------------------------------------------------------------------------------------


def test_a_step_size_that_breaks_the_network_is_noticed(fallen: Path) -> None:
    found = read_result(fallen / RESULT)
    assert found.collapsed is not None
    assert [each.task for each in found.collapsed] == [1, 2, 3]
    for task, recall, chance in found.collapsed:
        rows = found.measures["task_il"].accuracy_matrix[task - 1 : task + 1]
        best = max(value for row in rows if (value := row[task - 1]) is not None)
        assert (recall, chance) == (pytest.approx(best, abs=2), 50.0)  # the two classes are about as frequent


@pytest.mark.parametrize("method", METHODS)
def test_no_method_as_it_is_shipped_is_marked(tmp_path: Path, method: str) -> None:
    memory = 50 if METHODS[method].memory else None
    assert perform(plan("seq-digits", method, memory=memory, tasks=2, device="cpu"), tmp_path).collapsed == []


@pytest.mark.parametrize("stream", ["perm-digits", "digits-360"])
@pytest.mark.parametrize(("rate", "expected"), [("0.1", False), ("5", True)])
def test_every_kind_of_stream_is_judged(tmp_path: Path, stream: str, rate: str, expected: bool) -> None:
    assert perform(short(stream, settings={"lr": rate}), tmp_path).has_collapsed is expected


def test_a_run_that_diverged_is_no_result_and_the_other_seeds_go_on(sncl: Sncl, tmp_path: Path) -> None:
    """Its loss was 10^21, and small again when all neurons were dead: this was 10.00 % and an exit code of 0."""
    broken = ["train", "--stream", "seq-digits", "--epochs", "1", "--method", "er", "--set", "lr=1000", "--out", "run"]
    done = sncl(*broken, "--checkpoint", "0")
    assert done.code == 2 and done.out == ""
    assert re.fullmatch(
        r"error: the loss rose to \S+e\+\d+ in task 1, and the task was not learned \(mean recall 50.0 %, chance "
        r"50.0 %\); use a smaller --set lr=\.\.\. or smaller weights of the losses; what was stored before is "
        r"untouched\n",
        done.err,
    )
    assert not (tmp_path / "run" / RESULT).exists()
    _, kept = read_checkpoint(tmp_path / "run" / CHECKPOINT)  # before the task ended
    assert kept["scores"]["matrices"] == {}
    assert sncl(*broken).err == done.err  # also when it is resumed, which has only the end of the task before it

    several = sncl(*TRAIN, "--set", "lr=3", "--seeds", "3", "--out", "several")
    finished = sorted(path.parent.name for path in (tmp_path / "several").glob(f"*/{RESULT}"))
    assert several.code == 2 and several.err.endswith(
        f"({3 - len(finished)} of 3 runs failed; the others are stored)\n"
    )
    assert 0 < len(finished) < 3


def test_a_run_warns_when_the_next_task_has_not_brought_it_back(tmp_path: Path) -> None:
    moments: list[Moment] = []
    found = perform(FALLEN, tmp_path, watch=moments.append)
    evaluations = [moment.evaluation for moment in moments if moment.evaluation is not None]
    assert evaluations[0].collapsed == () and evaluations[0].warning() is None
    assert [each.task for each in evaluations[1].collapsed] == [1]
    assert "task 1 was not learned (mean recall 5" in (evaluations[1].warning() or "")
    assert list(evaluations[2].collapsed) == found.collapsed


def crashed(folder: Path) -> None:
    """Leave the run in ``folder`` in the middle of its third task."""

    def crash(moment: Moment) -> None:
        if moment.task == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(FALLEN, folder, watch=crash, checkpoint_seconds=0)


def test_a_resumed_run_judges_all_its_tasks(tmp_path: Path, fallen: Path) -> None:
    crashed(tmp_path)
    moments: list[Moment] = []
    assert perform(FALLEN, tmp_path, watch=moments.append).collapsed == read_result(fallen / RESULT).collapsed
    first = moments[0].evaluation
    assert first is not None
    assert [each.task for each in first.collapsed] == [1]


def test_a_checkpoint_that_does_not_say_counts_its_tasks_as_learned(tmp_path: Path) -> None:
    crashed(tmp_path)
    tensors, description = read_checkpoint(tmp_path / CHECKPOINT)
    del description["scores"]["best_recalls"]
    write_checkpoint(tmp_path / CHECKPOINT, tensors, description)
    assert [each.task for each in perform(FALLEN, tmp_path).collapsed or []] == [3]


# --- its result --------------------------------------------------------------------------------------------------


def test_a_result_that_does_not_say_is_read_and_left_as_it_is(fallen: Path) -> None:
    facts = read_result(fallen / RESULT).to_json()
    assert [each["task"] for each in facts["collapsed"]] == [1, 2, 3]
    assert Result.from_json(facts).to_json() == facts
    del facts["collapsed"]
    older = Result.from_json(facts)
    assert older.collapsed is None and not older.has_collapsed
    assert older.to_json() == facts


# --- where its numbers are shown ---------------------------------------------------------------------------------


def test_tables_mark_it() -> None:
    bad = [Collapse(2, 50.0, 50.0)]
    one = result("sgd", collapsed=bad, memory=0)
    several = [result(seed=0, collapsed=bad), result(seed=1, collapsed=[]), result(seed=2)]
    headings, cells = results_table([one, *several])
    found = [dict(zip(headings, line, strict=True)) for line in cells]
    assert [(line["seeds"], line["Class-IL"], line["Task-IL"]) for line in found] == [
        ("1", "80.00 †", "95.00 †"),
        ("3, 1 of 3 collapsed", "80.00 ± 0.00 †", "95.00 ± 0.00 †"),
    ]
    assert footnote([one, *several]) == COLLAPSE_NOTE
    healthy = [result(collapsed=[]), result(seed=1)]
    assert "†" not in str(results_table(healthy)) and footnote(healthy) is None


def test_the_command_line_warns_once_and_ends_well(sncl: Sncl) -> None:
    done = sncl(*TRAIN, "--set", "lr=1.5", "--out", "run")
    assert done.code == 0
    assert done.err.count("warning: task") == 1 and "Traceback" not in done.err
    assert re.search(
        r"(?m)^warning: task 1 was not learned \(mean recall 5\d\.\d %, chance 50\.0 %\); "
        r"use a smaller --set lr=\.\.\. or more --epochs$",
        done.err,
    )
    heading, line, note = done.out.splitlines()
    assert "Class-IL" in heading and line.count("†") == 2
    assert note.startswith("† collapsed: ") and note.endswith("use a smaller --set lr=... or more --epochs")
    # the stored result is marked as well, and JSON has it
    again = sncl(*TRAIN, "--set", "lr=1.5", "--out", "run")
    assert again.out == done.out and "warning: task" not in again.err
    facts = sncl(*TRAIN, "--set", "lr=1.5", "--out", "run", "--json").json()
    assert facts["collapsed"][0]["task"] == 1


def test_a_healthy_run_says_nothing(sncl: Sncl) -> None:
    done = sncl(*TRAIN)
    assert (done.code, "warning" in done.err, "†" in done.out) == (0, False, False)


def test_a_report_marks_it_and_says_which_tasks(tmp_path: Path, fallen: Path) -> None:
    write_report([fallen], tmp_path / "one.html", print)
    text = (tmp_path / "one.html").read_text()
    assert re.search(r"<td>\d+\.\d\d †</td>", text)
    assert "† collapsed: a task or more was not learned" in text
    assert "seq-digits, ER: seed 0 did not learn tasks 1–3." in text


def test_a_report_counts_the_seeds_that_collapsed(tmp_path: Path, fallen: Path) -> None:
    perform(replace(FALLEN, seed=1), tmp_path / "other")
    write_report([fallen, tmp_path / "other"], tmp_path / "two.html", print)
    assert "<td>2, 2 of 2 collapsed</td>" in (tmp_path / "two.html").read_text()
