"""Whether an exported model predicts what a network does, and what a model costs: size, operations and time."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sncl.errors import SnclError
from sncl.evaluation.accuracy import READOUTS, Readout, correct
from sncl.evaluation.metrics import average
from sncl.export.formats import Predict
from sncl.networks.pruning.scales import ChannelScale
from sncl.streams.stream import Stream

BATCH_SIZE = 500  # of one pass over the test data
TIE = 1e-4  # of the largest logit of a sample: classes nearer to each other than this may change places
TIMED_BATCHES = (1, 128)  # samples for which time is measured
LEAST_SECONDS, LEAST_CALLS = 0.3, 5  # of one measurement


class PredictionCheck(NamedTuple):
    """What the test data say: samples, the largest difference of logits, accuracy in percent before and after."""

    samples: int
    difference: float
    before: dict[Readout, float]
    after: dict[Readout, float]


def compare_predictions(stream: Stream, network: Predict, exported: Predict) -> PredictionCheck:
    """Run an exported model on all test data beside its network; other predictions are an error."""
    before, after = _Accuracy(stream), _Accuracy(stream)
    samples, wrong, difference = 0, 0, 0.0
    for task in range(stream.test_tasks):
        x, y = stream.test(task)
        expected, found = network(x), torch.cat([exported(part) for part in x.split(BATCH_SIZE)])
        wrong += _other_predictions(expected, found)
        difference = max(difference, float((found - expected).abs().max()))
        samples += len(y)
        before.add(task, expected, y)
        after.add(task, found, y)
    if wrong:
        raise SnclError(
            f"the exported model predicts another class than the network for {wrong} of {samples} samples (logits "
            f"differ by up to {difference:.1e}); nothing was written"
        )
    return PredictionCheck(samples, difference, before.averages(), after.averages())


def _other_predictions(expected: Tensor, found: Tensor) -> int:
    """For how many samples another class is predicted than expected, ties aside."""
    best = expected.amax(1)
    behind = best - expected.gather(1, found.argmax(1, keepdim=True))[:, 0]
    return int((behind > TIE * best.abs().clamp(min=1)).sum())


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


def count_parameters(net: nn.Module) -> int:
    """Learned numbers, what is left of gates included."""
    scales = (module for module in net.modules() if isinstance(module, ChannelScale))
    factors = sum(value.numel() for scale in scales for value in scale.buffers())
    return factors + sum(parameter.numel() for parameter in net.parameters())


def count_flops(model: nn.Module, image: Tensor) -> int:
    """Floating-point operations of matrix products and convolutions for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    return int(counter.get_total_flops())


def count_bytes(model: nn.Module) -> int:
    """The size of the weights as safetensors."""
    return len(save({name: value.contiguous().clone() for name, value in model.state_dict().items()}))


def latencies(model: Predict, images: Tensor) -> dict[str, float]:
    """Milliseconds of one call, by the number of images."""
    return {str(size): round(_milliseconds(model, images[:size]), 4) for size in TIMED_BATCHES}


def _milliseconds(model: Predict, images: Tensor) -> float:
    """The median time of one call."""
    times: list[float] = []
    with torch.inference_mode():
        for _ in range(2):
            model(images)
        while len(times) < LEAST_CALLS or sum(times) < LEAST_SECONDS:
            start = perf_counter()
            model(images)
            times.append(perf_counter() - start)
    return 1000 * median(times)


def measure_model(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """Everything that a model costs in PyTorch."""
    return {
        "parameters": count_parameters(model),
        "bytes": count_bytes(model),
        "flops": count_flops(model, images[:1]),
        "milliseconds": latencies(model, images),
    }
