"""One row at a time, as a live stream brings them: learned and predicted, by a learner and by an estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from sncl.bench.timing import steps_within, timed
from sncl.estimator.classifier import ContinualClassifier
from sncl.networks.mlp import dense
from sncl.tensors.random import generator
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.learner import Learner

FEATURES, CLASSES, HIDDEN = 30, 10, (100, 100)
MEMORY, REPLAY = 200, 32
ROWS_BEFORE = 400  # the memory is full, and what is prepared for rows like these is there
TIMINGS = 7  # of which the median counts
THROUGH = ("learner", "estimator")


@dataclass(frozen=True)
class RowTime:
    """How fast single rows are learned and predicted, beside the bare network's passes for it (the bound)."""

    device: str
    through: str
    method: str
    features: int
    rows_per_s: float
    ms_per_row: float
    bound_ms: float
    ratio: float


def measure_rows(method: str, through: str, device: str) -> RowTime:
    """``learn`` and ``predict`` of one row after the other on one core, timed in turns with the bare network."""
    place = torch.device(device)
    with exact_kernels(), on_threads(1):
        step, draws = one_row(method, through, device)
        bare = bare_row(1 + REPLAY * draws, place)
        for _ in range(ROWS_BEFORE):
            step()
        rows, bare_rows = steps_within(step, place), steps_within(bare, place)
        times, bare_times = [], []
        for _ in range(TIMINGS):
            times.append(timed(step, rows, place))
            bare_times.append(timed(bare, bare_rows, place))
    seconds, bound = median(times), median(bare_times)
    return RowTime(device, through, method, FEATURES, 1 / seconds, 1000 * seconds, 1000 * bound, seconds / bound)


def one_row(method: str, through: str, device: str) -> tuple[Callable[[], None], int]:
    """A function that predicts and learns the next row of a stream, and how many batches are replayed with it."""
    rows = endless_rows()
    if through == "learner":
        learner = Learner(dense(FEATURES, CLASSES, HIDDEN), method, memory=MEMORY, replay=REPLAY, device=device)

        def learned() -> None:
            x, y = next(rows)
            learner.learn(x, y)
            learner.predict(x)

        return learned, learner.method.draws
    model = ContinualClassifier(
        method, memory=MEMORY, replay=REPLAY, hidden=HIDDEN, random_state=0, device=device, lr=0.03
    )
    x, y = next(rows)
    model.partial_fit(x.numpy(), y.numpy(), classes=range(CLASSES))

    def fitted() -> None:
        x, y = (each.numpy() for each in next(rows))
        model.partial_fit(x, y)
        model.predict(x)

    return fitted, model.learner_.method.draws


def endless_rows() -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of random numbers, each with the label of a class."""
    draw = generator(0, "bench")
    while True:
        x = torch.randn(256, 1, FEATURES, generator=draw)
        yield from zip(x, torch.randint(CLASSES, (256, 1), generator=draw), strict=True)


def bare_row(samples: int, device: torch.device) -> Callable[[], None]:
    """What one row takes of the network alone: passes to learn so many samples, and one to predict the row."""
    net = dense(FEATURES, CLASSES, HIDDEN).to(device)
    x, y = torch.randn(samples, FEATURES, device=device), torch.randint(CLASSES, (samples,), device=device)

    def run() -> None:
        F.cross_entropy(net(x), y).backward()
        for parameter in net.parameters():
            parameter.grad = None
        with torch.no_grad():
            net(x[:1]).argmax(1)

    return run
