"""Accuracy read out of logits, and the measures of an accuracy matrix, against numbers worked out by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sncl.evaluation.accuracy import READOUTS, Readout, correct
from sncl.evaluation.metrics import Matrix, average, backward_transfer, forgetting, forward_transfer

# Task 0 was best after task 1, and task 1 looked better before it was learned than ever after.
MATRIX: Matrix = [
    [70.0, 95.0, None],
    [90.0, 80.0, 20.0],
    [30.0, 50.0, 70.0],
]
UNTRAINED = [99.0, 10.0, 30.0]


def test_average_is_the_mean_of_the_last_row() -> None:
    assert average(MATRIX) == 50.0  # (30 + 50 + 70) / 3


def test_forgetting_is_the_fall_from_the_best_since_the_task_was_learned() -> None:
    assert forgetting(MATRIX) == 45.0  # ((90 - 30) + (80 - 50)) / 2; the 95 came before learning


def test_backward_transfer_compares_with_the_moment_of_learning() -> None:
    assert backward_transfer(MATRIX) == -35.0  # ((30 - 70) + (50 - 80)) / 2


def test_forward_transfer_compares_with_the_untrained_network() -> None:
    assert forward_transfer(MATRIX, UNTRAINED) == 37.5  # ((95 - 10) + (20 - 30)) / 2


def test_a_task_that_only_gets_better_is_not_forgotten() -> None:
    better: Matrix = [[50.0, 0.0, None], [60.0, 40.0, 0.0], [80.0, 70.0, 90.0]]
    assert forgetting(better) == 0.0
    assert backward_transfer(better) == 30.0  # ((80 - 50) + (70 - 40)) / 2


@pytest.mark.parametrize("row", [[42.0], [42.0, 17.0]])
def test_one_task_has_nothing_to_forget_or_transfer(row: list[float]) -> None:
    assert average([row]) == sum(row) / len(row)
    assert forgetting([row]) is None
    assert backward_transfer([row]) is None
    assert forward_transfer([row], [0.0] * len(row)) is None


def test_what_was_not_measured_does_not_count() -> None:
    gaps: Matrix = [[70.0, None, None], [None, 80.0, 20.0], [30.0, None, 70.0]]
    assert average(gaps) == 50.0  # (30 + 70) / 2
    assert forgetting(gaps) == 40.0  # 70 - 30; task 1 has no last accuracy
    assert backward_transfer(gaps) == -40.0
    assert forward_transfer(gaps, UNTRAINED) == -10.0  # 20 - 30; task 1 was not tested before it was learned
    assert forward_transfer(gaps, [None, None, None]) is None
    assert backward_transfer([[None, 1.0], [5.0, 5.0]]) is None
    assert forgetting([[9.0, 1.0], [None, 5.0]]) is None


def test_zero_is_a_measurement() -> None:
    zeros: Matrix = [[0.0, 0.0], [0.0, 0.0]]
    assert (average(zeros), forgetting(zeros), backward_transfer(zeros)) == (0.0, 0.0, 0.0)
    assert forward_transfer(zeros, [0.0, 40.0]) == -40.0


@given(st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.floats(0, 100), min_size=n, max_size=n), min_size=n)))
def test_forgetting_is_never_less_than_the_loss_since_learning(matrix: list[list[float]]) -> None:
    matrix = matrix[: len(matrix[0])]
    lost, gained = forgetting(matrix), backward_transfer(matrix)
    assert lost is not None and gained is not None
    assert lost >= 0.0
    assert lost >= -gained - 1e-9


# Four classes, two tasks of two: rows 0 and 1 belong to task 0, rows 2 and 3 to task 1.
LOGITS = torch.tensor(
    [
        [3.0, 1.0, 2.0, 0.0],  # class 0 wins everywhere
        [0.0, 2.0, 9.0, 0.0],  # class 2 wins, but among task 0 it is class 1
        [5.0, 0.0, 1.0, 4.0],  # class 0 wins, and among task 1 class 3 and not 2
        [0.0, 0.0, -7.0, -1.0],  # task 1's units are all negative, yet among them class 3 wins
    ]
)


@pytest.mark.parametrize(
    ("rows", "labels", "group", "all_classes", "of_the_task"),
    [
        ([0, 1], [0, 1], [True, True, False, False], 1, 2),
        ([2, 3], [2, 3], [False, False, True, True], 0, 1),
        ([0, 1, 2, 3], [1, 0, 1, 1], [True, True, False, False], 0, 0),
    ],
)
def test_read_outs(rows: list[int], labels: list[int], group: list[bool], all_classes: int, of_the_task: int) -> None:
    logits, y, mask = LOGITS[rows], torch.tensor(labels), torch.tensor(group)
    untouched = logits.clone()
    assert int(correct(logits, y, mask, "task_il")) == of_the_task
    others: tuple[Readout, ...] = ("class_il", "domain_il", "gcl")
    assert [int(correct(logits, y, mask, readout)) for readout in others] == [all_classes] * 3
    assert torch.equal(logits, untouched)


def test_each_scenario_has_its_read_outs() -> None:
    assert READOUTS == {"class-il": ("class_il", "task_il"), "domain-il": ("domain_il",), "general": ("gcl",)}
