"""When a task counts as not learned: by hand, from chance over the margin to too few samples to tell."""

import pytest
import torch

from sncl.evaluation.accuracy import mean_recall
from sncl.evaluation.collapse import Collapse, TaskTest, collapses, warning_of
from sncl.training.evaluate import Assessment, Scores

TWO, TEN = TaskTest(100, 2), TaskTest(1000, 10)


@pytest.mark.parametrize(
    ("recall", "test", "expected"),
    [
        # a tenth of the way from 50 to 100 is 5; half of a chance of 10 is 5, a tenth of the way would be 9
        *((50.0, TWO, True), (55.0, TWO, True), (55.1, TWO, False), (42.0, TWO, True), (99.0, TWO, False)),
        *((10.0, TEN, True), (15.0, TEN, True), (15.1, TEN, False), (30.0, TEN, False)),
        # hard, but learned: 4 % of 200 classes
        *((4.0, TaskTest(2000, 200), False), (0.75, TaskTest(2000, 200), True)),
        # too little to tell
        *((50.0, TaskTest(19, 2), False), (50.0, TaskTest(20, 2), True), (0.0, TaskTest(100, 1), False)),
    ],
)
def test_the_margin(recall: float, test: TaskTest, expected: bool) -> None:
    assert bool(collapses([recall], [test])) is expected


def test_tasks_are_counted_from_one_and_those_to_come_are_not_judged() -> None:
    found = collapses([99.0, 50.004, 80.0, 12.0], [TWO, TWO, TEN, TEN, TEN])
    assert found == [Collapse(2, 50.0, 50.0), Collapse(4, 12.0, 10.0)]


def test_recall_is_the_mean_over_the_classes_there_are() -> None:
    y = torch.tensor([3] * 8 + [1] * 2)
    assert mean_recall(y, y) == 100.0
    # however uneven the classes are, a constant answer has one of two
    assert mean_recall(torch.full_like(y, 3), y) == mean_recall(torch.full_like(y, 1), y) == 50.0
    assert mean_recall(torch.zeros_like(y), y) == 0.0
    answers = torch.tensor([3, 3, 3, 3, 3, 3, 0, 0, 1, 3])  # 6 of 8 and 1 of 2
    assert mean_recall(answers, y) == pytest.approx(62.5)


def scored(*rows: list[float | None]) -> Scores:
    """What is known after these rows of recalls, each after one more task."""
    scores = Scores()
    for task, row in enumerate(rows):
        scores.add(Assessment({"domain_il": row}, row), range(task + 1), None)
    return scores


def test_a_task_that_is_forgotten_was_learned() -> None:
    scores = scored([90.0, 11.0, None], [10.0, 88.0, 9.0], [10.0, 10.0, 91.0])
    assert scores.best_recalls == [90.0, 88.0, 91.0]
    assert collapses(scores.best_recalls, [TEN] * 3) == []


def test_a_task_that_the_next_one_learns_from_the_memory_was_learned() -> None:
    scores = scored([90.0, 11.0, None], [85.0, 10.0, 9.0], [85.0, 60.0, 70.0])
    assert collapses(scores.best_recalls, [TEN] * 3) == []


def test_what_comes_later_is_luck() -> None:
    """A network that hovers above chance reaches any bound after enough evaluations."""
    row = [None] * 4
    scores = scored([10.0, 9.0, *row[2:]], [11.0, 12.0, *row[2:]], [17.0, 13.0, 60.0, None], [10.0, 18.0, 17.0, 90.0])
    assert scores.best_recalls == [11.0, 13.0, 60.0, 90.0]


def test_without_boundaries_all_tasks_are_judged_at_once() -> None:
    scores = Scores()
    row: list[float | None] = [10.0, 90.0, 80.0]
    scores.add(Assessment({"domain_il": row}, row), range(3), None)
    assert scores.best_recalls == row


def test_a_network_that_falls_to_chance_learns_nothing_from_there_on() -> None:
    # what it answered to a task before learning it does not count: 40 % by luck
    scores = scored([90.0, 11.0, None], [10.0, 10.0, 40.0], [10.0, 10.0, 10.0])
    assert collapses(scores.best_recalls, [TEN] * 3) == [Collapse(2, 10.0, 10.0), Collapse(3, 10.0, 10.0)]


def test_what_is_said_of_it() -> None:
    assert warning_of(Collapse(7, 11.2, 10.0), only=False) == (
        "task 7 was not learned (mean recall 11.2 %, chance 10.0 %); use a smaller `lr` or more `epochs`"
    )
    assert warning_of(Collapse(1, 11.2, 11.11), only=True) == (
        "the stream was not learned (mean recall 11.2 %, chance 11.1 %); "
        "use a smaller `lr` or a method that forgets less"
    )
