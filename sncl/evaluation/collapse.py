"""Tasks that were not learned: a network that has fallen to chance, or was never above it.

A task is judged by its mean recall: the share of right answers in each class of its test set, averaged over these
classes. The better one of two evaluations counts, after the task's own end and after the next task, since some tasks
are learned from what is replayed of them. Any constant answer has a recall of 100 % in one class and of 0 % in the
others, so chance is 100 % by the number of classes, however uneven they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

FEWEST_SAMPLES = 20  # in a test set that tells a learned task from one that is not


class Collapse(NamedTuple):
    """A task that was not learned: its number, counted from 1, its mean recall and chance, in percent."""

    task: int
    recall: float
    chance: float


def chance(classes: int) -> float:
    """The mean recall of a constant answer, in percent."""
    return 100 / classes


def learned_above(classes: int) -> float:
    """The mean recall that a learned task exceeds: a tenth of the way from chance to 100 %, or half of chance if less.

    >>> [round(learned_above(classes), 1) for classes in (2, 5, 10, 100)]
    [55.0, 28.0, 15.0, 1.5]
    """
    lowest = chance(classes)
    return lowest + min((100 - lowest) / 10, lowest / 2)


class TaskTest(NamedTuple):
    """How many samples a test set has, and how many classes occur in it."""

    samples: int
    classes: int

    @property
    def is_telling(self) -> bool:
        """Whether it can tell a learned task: a constant answer is always right where there is one class."""
        return self.samples >= FEWEST_SAMPLES and self.classes > 1


def collapses(recalls: Iterable[float], tests: Iterable[TaskTest]) -> list[Collapse]:
    """The tasks that were not learned, by their mean recalls and their test sets."""
    return [
        Collapse(task, round(recall, 2), round(chance(test.classes), 2))
        for task, (recall, test) in enumerate(zip(recalls, tests, strict=False), 1)
        if test.is_telling and recall <= learned_above(test.classes)
    ]


def warning_of(collapse: Collapse, only: bool) -> str:
    """What to say of a task that was not learned; ``only`` says that the whole stream is tested as one."""
    what = "the stream" if only else f"task {collapse.task}"
    remedy = "a method that forgets less" if only else "more `epochs`"
    found = f"mean recall {collapse.recall:.1f} %, chance {collapse.chance:.1f} %"
    return f"{what} was not learned ({found}); use a smaller `lr` or {remedy}"
