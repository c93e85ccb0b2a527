"""What was predicted and waits for its label, and how often predictions were right when it came."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from sncl.serving.refusals import RequestRefused, listed
from sncl.training.follow import Score


class KeptPrediction(NamedTuple):
    """A row and what was predicted of it."""

    row: Any
    predicted: Any


class Ledger:
    """Predictions by id, the newest ``limit`` of them, and the score of those whose label came.

    All that it holds follows from the order of calls, so a journal of them makes it again.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: OrderedDict[str, KeptPrediction] = OrderedDict()  # the oldest first
        self.score = Score()
        self.predicted = 0  # rows, kept or not

    def check_new(self, ids: list[str]) -> None:
        """Refuse ids under which a prediction waits already."""
        if taken := [each for each in ids if each in self.waiting]:
            raise RequestRefused(409, f"predictions wait under these ids already: {listed(taken)}", {"ids": taken})

    def check_waiting(self, ids: list[str]) -> None:
        """Refuse ids under which none waits."""
        if unknown := [each for each in ids if each not in self.waiting]:
            raise RequestRefused(
                404,
                f"no prediction waits under the ids {listed(unknown)}: never made, labelled already, or expired (the "
                f"newest {self.limit} are kept); nothing of this request was learned",
                {"ids": unknown},
            )

    def add(self, ids: list[str], rows: list[Any], predictions: list[Any]) -> None:
        """Keep predictions until their labels come, or they are the oldest."""
        self.predicted += len(rows)
        self.waiting.update(zip(ids, map(KeptPrediction, rows, predictions), strict=True))
        while len(self.waiting) > self.limit:
            self.waiting.popitem(last=False)

    def take(self, ids: list[str], labels: list[Any]) -> list[Any]:
        """The rows of predictions whose labels came, which count from now on."""
        found = [self.waiting.pop(each) for each in ids]
        hits = [float(each.predicted == label) for each, label in zip(found, labels, strict=True)]
        self.score = self.score.after(torch.tensor(hits, dtype=torch.float64))
        return [each.row for each in found]

    def copy(self) -> Ledger:
        """As it is now; rows are shared, for nobody changes them."""
        twin = Ledger(self.limit)
        twin.waiting, twin.score, twin.predicted = self.waiting.copy(), self.score, self.predicted
        return twin

    def lines(self) -> Iterator[bytes]:
        """Each prediction that waits as a line of JSON: short ones, so that other threads get their turn."""
        for key, (row, predicted) in self.waiting.items():
            yield json.dumps([key, row, predicted], separators=(",", ":")).encode() + b"\n"

    def load(self, lines: Iterable[bytes], score: list[float], predicted: int) -> None:
        """The inverse of :meth:`lines`; more than ``limit`` are cut down to the newest."""
        read = [json.loads(line) for line in lines if line]
        newest = read[max(len(read) - self.limit, 0) :]
        self.waiting = OrderedDict((key, KeptPrediction(row, guess)) for key, row, guess in newest)
        labelled, right, *fading = score
        self.score = Score(int(labelled), int(right), *fading)
        self.predicted = predicted
