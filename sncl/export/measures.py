"""Whether an exported model predicts what a network does, and what a model costs: size, operations and time."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sncl.evaluation.accuracy import READOUTS, Readout, correct
from sncl.evaluation.metrics import average
from sncl.streams.stream import Stream
from sncl.training.exporting.check import other_predictions, refuse_other_predictions
from sncl.training.exporting.formats import Predict
from sncl.training.parallel import cores

BATCH_SIZE = 500  # of one pass over the test data
TIMED_BATCHES = (1, 64)  # samples for which time is measured
MOST_THREADS = 2  # on which it is measured: many machines have as many
ROUNDS, TURN_SECONDS = 7, 0.05  # of a measurement: in a round each model has its turn


class PredictionCheck(NamedTuple):
    """What the test data say: samples, the largest difference of logits, accuracy in percent before and after."""

    samples: int
    difference: float
    before: dict[Readout, float]
    after: dict[Readout, float]


def compare_predictions(stream: Stream, network: Predict, raw: Stream, exported: Predict) -> PredictionCheck:
    """Run an exported model on all test data beside its network; other predictions are an error.

    The model takes the samples of ``raw``, the same stream before it was standardised.
    """
    before, after = _Accuracy(stream), _Accuracy(stream)
    samples, wrong, difference = 0, 0, 0.0
    for task in range(stream.test_tasks):
        x, y = stream.test(task)
        shown = raw.test(task)[0].split(BATCH_SIZE)
        expected, found = network(x), torch.cat([exported(part) for part in shown])
        wrong += other_predictions(expected, found)
        difference = max(difference, float((found - expected).abs().max()))
        samples += len(y)
        before.add(task, expected, y)
        after.add(task, found, y)
    refuse_other_predictions(wrong, samples, difference)
    return PredictionCheck(samples, difference, before.averages(), after.averages())


class _Accuracy:
    """The accuracy on each task in percent, by read-out."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.scores: dict[Readout, list[float]] = {readout: [] for readout in READOUTS[stream.scenario]}

    def add(self, task: int, logits: Tensor, y: Tensor) -> None:
        for readout, scores in self.scores.items():
            right = int(correct(logits, y, self.stream.groups[task], readout))
            scores.append(100 * right / len(y))

    def averages(self) -> dict[Readout, float]:
        return {readout: average([list(scores)]) for readout, scores in self.scores.items()}


def timed_threads() -> int:
    """On how many threads time is measured: two, where there are so many cores."""
    return min(MOST_THREADS, cores())


def count_multiply_adds(model: nn.Module, sample: Tensor) -> int:
    """Multiply-adds of matrix products and convolutions for one sample: half of the floating-point operations."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(sample)
    return int(counter.get_total_flops()) // 2


def count_bytes(model: nn.Module) -> int:
    """The size of the weights as safetensors."""
    return len(save({name: value.contiguous().clone() for name, value in model.state_dict().items()}))


def latencies(models: Mapping[str, Predict], samples: Tensor) -> dict[str, dict[str, float]]:
    """Milliseconds of one call of each model, by the number of samples.

    The models take turns, so that whatever else the machine does slows all of them alike.
    """
    found = {size: _milliseconds(models, samples[:size]) for size in TIMED_BATCHES}
    return {name: {str(size): round(found[size][name], 4) for size in TIMED_BATCHES} for name in models}


def _milliseconds(models: Mapping[str, Predict], samples: Tensor) -> dict[str, float]:
    """The median time of one call of each model."""
    times: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, model in models.items():
                times[name] += _turn(model, samples)
    return {name: 1000 * median(taken) for name, taken in times.items()}


def _turn(model: Predict, samples: Tensor) -> list[float]:
    """Seconds of each call in a turn; the first call finds the caches filled by others and does not count."""
    model(samples)
    times: list[float] = []
    while not times or sum(times) < TURN_SECONDS:
        start = perf_counter()
        model(samples)
        times.append(perf_counter() - start)
    return times
