"""Pure functions of the accuracy matrix.

``matrix[t][k]`` is the accuracy in percent on task k after learning task t; None where it was not measured. A task
that lacks a number a measure needs does not count in it.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[float | None]
Matrix = Sequence[Row]


def _known(values: Row) -> list[float]:
    return [value for value in values if value is not None]


def mean_of_known(row: Row) -> float | None:
    """The mean over the tasks that were measured; None where none was."""
    known = _known(row)
    return sum(known) / len(known) if known else None


def mean(row: Row) -> float:
    """The mean over the tasks that were measured, one at least; every task counts the same."""
    known = _known(row)
    return sum(known) / len(known)


def average(matrix: Matrix) -> float:
    """The mean over all tasks after the last one."""
    return mean(matrix[-1])


def falls(matrix: Matrix) -> list[float | None]:
    """How far each earlier task k has fallen from its best: ``max_t A[t][k] - A[last][k]``, from t >= k on."""
    found: list[float | None] = []
    for task in range(len(matrix) - 1):
        now = matrix[-1][task]
        found.append(None if now is None else max(_known([row[task] for row in matrix[task:]])) - now)
    return found


def forgetting(matrix: Matrix) -> float | None:
    """How far earlier tasks have fallen, on average; None where there is no earlier task."""
    return mean_of_known(falls(matrix))


def backward_transfer(matrix: Matrix) -> float | None:
    """BWT: mean over earlier tasks k of ``A[last][k] - A[k][k]``; negative when later tasks hurt."""
    gains = []
    for task in range(len(matrix) - 1):
        now, learned = matrix[-1][task], matrix[task][task]
        if now is not None and learned is not None:
            gains.append(now - learned)
    return mean_of_known(gains)


def forward_transfer(matrix: Matrix, untrained: Row) -> float | None:
    """FWT: mean over tasks k > 0 of ``A[k-1][k] - U[k]``, with U the same network before it learned anything."""
    gains = []
    for task in range(1, len(matrix)):
        before, reference = matrix[task - 1][task], untrained[task]
        if before is not None and reference is not None:
            gains.append(before - reference)
    return mean_of_known(gains)
