"""Predictions as CSV: a column ``prediction`` with names of classes, then one with the probability of each class.

A name is quoted as CSV asks for it and else written as it is: whoever opens the file in a spreadsheet sees the names
that were in the training data, also those that begin with ``=``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from sncl.prediction.answers import Answers

PREDICTION = "prediction"
FILE = "file"


def csv_lines(
    answers: Iterable[Answers], class_names: Sequence[str], of_files: bool, probabilities: bool
) -> Iterator[str]:
    """The lines of the file, some at a time."""
    own = [*([FILE] if of_files else []), PREDICTION]
    head = [[*own, *(probability_columns(class_names, own) if probabilities else [])]]
    for predictions, chances, part in answers:
        columns: list[list[str]] = [part.files] if part.files is not None else []
        columns.append(predictions)
        if probabilities:
            columns += [[f"{value:.6g}" for value in column] for column in chances.T.tolist()]
        yield _csv([*head, *zip(*columns, strict=True)])
        head = []  # written with the first rows: where they are refused, nothing is


def probability_columns(class_names: Sequence[str], others: Sequence[str]) -> list[str]:
    """The name of each class, or ``class NAME`` where another column is called so."""
    taken, found = {*class_names, *others}, []
    for name in class_names:
        column = name
        while column in others or (column != name and column in taken):
            column = f"class {column}"
        found.append(column)
        taken.add(column)
    return found


def _csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
