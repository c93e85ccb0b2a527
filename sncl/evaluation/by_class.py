"""What the answers on all test samples say of each class: which are taken for which, and what is right by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # results are read without torch
    from torch import Tensor

LARGEST_MATRIX = 100  # classes: a confusion matrix of more is not written out
IMBALANCE = 2  # times as many test samples in the largest class as in the smallest


def confusion_counts(y: Tensor, answers: Tensor) -> Tensor:
    """Which class is taken for which: (true class, answer, samples), sorted. int64 [pairs, 3]

    There are no more such pairs than test samples, however many classes there are.
    """
    import torch

    return joined_counts([torch.stack([y, answers, torch.ones_like(y)], 1)])


def joined_counts(parts: Sequence[Tensor]) -> Tensor:
    """The :func:`confusion_counts` of several test sets together. int64 [pairs, 3]"""
    import torch

    y, answers, number = torch.cat(list(parts)).unbind(1)
    classes = 1 + int(torch.maximum(y, answers).max())
    pairs, place = (y * classes + answers).unique(return_inverse=True)
    counts = torch.zeros_like(pairs).index_add_(0, place, number)
    return torch.stack([pairs // classes, pairs % classes, counts], 1)


@dataclass(frozen=True)
class ByClass:
    """One read-out of all test samples, by class; accuracies are in percent.

    ``samples`` is how many each class has in the test sets, ``recall`` the share of them that is answered right (None
    for a class without any). ``balanced_accuracy`` is the mean recall, ``majority`` what always answering the most
    frequent class would get. ``confusion`` counts samples, with a row for each true class and a column for each answer;
    None where there are too many classes.
    """

    balanced_accuracy: float
    majority: float
    samples: list[int]
    recall: list[float | None]
    confusion: list[list[int]] | None

    @classmethod
    def counted(cls, counts: Tensor, classes: int) -> Self:
        """From :func:`confusion_counts` over so many classes."""
        import torch

        y, answers, number = counts.cpu().unbind(1)
        samples, right = (
            torch.zeros(classes, dtype=torch.int64).index_add_(0, y, each).tolist()
            for each in (number, number * (y == answers))
        )
        if classes > LARGEST_MATRIX:
            return cls.of(samples, right, None)
        matrix = torch.zeros(classes, classes, dtype=torch.int64).index_put_((y, answers), number)
        return cls.of(samples, right, matrix.tolist())

    @classmethod
    def of(cls, samples: list[int], right: Sequence[int], confusion: list[list[int]] | None) -> Self:
        """From how many samples there are of each class, and how many of them are answered right."""
        recall = [100 * hits / count if count else None for hits, count in zip(right, samples, strict=True)]
        known = [share for share in recall if share is not None]
        return cls(math.fsum(known) / len(known), 100 * max(samples) / sum(samples), samples, recall, confusion)

    @property
    def right(self) -> list[int]:
        """How many samples of each class are answered right."""
        pairs = zip(self.recall, self.samples, strict=True)
        return [0 if share is None else round(share * count / 100) for share, count in pairs]

    @property
    def is_imbalanced(self) -> bool:
        """Whether some class has at least twice the test samples of another."""
        there = [count for count in self.samples if count]
        return max(there) >= IMBALANCE * min(there)

    @property
    def pooled_accuracy(self) -> float:
        """The share of all test samples that is answered right: every sample counts the same, not every task."""
        return 100 * sum(self.right) / sum(self.samples)

    @property
    def is_below_majority(self) -> bool:
        """Whether always answering the most frequent class would be right more often."""
        return sum(self.right) < max(self.samples)

    def check(self) -> None:
        """Refuse numbers that contradict each other, or are none."""
        if not _is_counts(self.samples) or not sum(self.samples) or len(self.recall) != len(self.samples):
            raise ValueError("'by_class' has no numbers of samples")
        if not all(share is None or (_is_number(share) and 0 <= share <= 100) for share in self.recall):
            raise ValueError("'by_class' has a recall that is no percentage")
        right, confusion = self.right, self.confusion
        if confusion is not None:
            if not all(_is_counts(row) and len(row) == len(self.samples) for row in confusion):
                raise ValueError("'by_class' has no confusion matrix")
            told = [sum(row) for row in confusion], [row[place] for place, row in enumerate(confusion)]
            if len(confusion) != len(self.samples) or told != (self.samples, right):
                raise ValueError("'by_class' has a confusion matrix of other samples")
        if type(self).of(self.samples, right, confusion) != self:
            raise ValueError("'by_class' has accuracies of other samples")


def _is_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
