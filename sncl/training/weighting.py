"""How much the label of each sample counts: what a user passes as weights, and weights that make up for rare classes.

A weight is one more field of a batch, and of the memory from the first batch that has one on. A sample without a weight
counts 1, so weights may come and go, and nothing about them has to be kept but the memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.method import Method
from sncl.methods.terms import WEIGHT
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields
from sncl.tensors.transfer import upload
from sncl.training.inputs import Labels, as_labels, as_tensor

CLASS_WEIGHTS = ("none", "balanced")


def as_weights(weight: Labels | None, y: Labels, method: Method) -> Tensor | None:
    """One finite weight of at least 0 for each label, or an error before anything is learned; None where none is given.

    The values of weights that lie on a GPU are not looked at: reading them back would stall it at every step.
    """
    if weight is None:
        return None
    check_takes_weights(method)
    weights, labels = as_tensor("weight", weight).to(torch.float32), as_labels(y)
    if weights.shape != labels.shape:
        raise SnclError(
            f"`weight` is one number for each label in y: got {list(weights.shape)} for {list(labels.shape)}"
        )
    if weights.device.type == "cpu" and not (torch.isfinite(weights) & (weights >= 0)).all():
        wrong = weights[~(torch.isfinite(weights) & (weights >= 0))][0]
        raise SnclError(f"a `weight` is a finite number of at least 0, not {float(wrong):g}")
    return weights


def weights_beside(memory: Memory | None, y: Tensor, weights: Tensor | None) -> Fields:
    """The field of a batch with labels ``y`` on the device; none while there was never a weight.

    The first weights of all make those of the samples in memory 1.
    """
    stored = {} if memory is None else memory.tensors
    if weights is None:
        return {WEIGHT: torch.ones(len(y), device=y.device)} if WEIGHT in stored else {}
    if memory is not None and stored and WEIGHT not in stored:
        memory.load(memory.state() | {f"rows/{WEIGHT}": torch.ones(len(memory), device=memory.device)})
    return {WEIGHT: upload(weights, y.device)}


def check_class_weight(name: str, method: Method) -> None:
    """Refuse a way to weigh classes that there is not, or that the method cannot use."""
    if name not in CLASS_WEIGHTS:
        raise SnclError(f"`class_weight` is one of {', '.join(CLASS_WEIGHTS)}, not {name!r}")
    if name != "none":
        check_takes_weights(method)


def check_takes_weights(method: Method) -> None:
    if not method.takes_weights:
        raise SnclError(f"{type(method).__name__} takes no weights of samples; leave them out, or use another method")


def balanced(counts: Tensor) -> Tensor:
    """The weight of each class, samples / (classes that came * samples of the class); 1 for one that did not come.

    ``counts`` is how many samples of each class came. [classes]
    """
    came = counts > 0
    share = counts.sum().double() / (came.sum() * counts.clamp(min=1))
    return torch.where(came, share, 1.0)


class TaskWeights:
    """Weights of the samples of a stream that make up for rare classes, by all training samples up to a task's end.

    What comes in later tasks is not looked at. The same wherever a run is resumed.
    """

    def __init__(self, stream: Stream) -> None:
        each = [torch.bincount(stream.y[phase.rows], minlength=stream.classes) for phase in stream.phases]
        so_far = torch.stack(each).cumsum(0)
        self._weights = [balanced(counts).float().to(stream.device) for counts in so_far]

    def __call__(self, task: int, y: Tensor) -> Tensor:
        return self._weights[task][y]
