"""What a run looks like inside when it is evaluated: whom the memory holds, and which neurons are open and in use.

Small numbers for the log. Nothing is drawn at random and nothing is changed, so a run is the same with and without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sncl.networks.gating.attach import gates, open_neurons
from sncl.networks.gating.gate import Gate
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

USED = 0.1  # of the layer's strongest mean response: from there on a task uses a neuron
BESIDE = 100  # tasks that the one learned last is put beside, itself included
PROBED_ROWS = 200  # of each task's test samples, evenly spaced


def diagnostics(learner: Learner, stream: Stream, learned: range, last: bool) -> dict[str, Any]:
    """What there is to see, by name; what a method does not have is left out.

    Which neurons tasks use is told of the task learned last, beside some before it, and of all where the run ends
    (``last``): all of it each time would grow with the cube of the tasks.
    """
    found: dict[str, Any] = {}
    if learner.memory is not None and "y" in (content := learner.memory.content()):
        classes = content["y"].cpu().bincount(minlength=stream.classes)
        found["memory_by_class"] = classes.tolist()
        if stream.scenario == "class-il":  # elsewhere every task has all classes, and a sample does not tell its task
            found["memory_by_task"] = (stream.groups.cpu().long() @ classes).tolist()
    with learner.predicting():
        layers = open_neurons(learner.net.body)
    if layers:
        found["open_neurons"] = {name: [int(layer.sum()), len(layer)] for name, layer in layers.items()}
        told, beside = (learned, len(learned)) if last else (learned[-1:], BESIDE)
        found["neuron_use"] = neuron_use([responses(learner, stream, task) for task in learned], told, beside)
    return found


class _Mean:
    """A forward hook that keeps the mean absolute value of each neuron behind its gate."""

    def __init__(self, name: str, kept: Fields) -> None:
        self.name, self.kept = name, kept

    def __call__(self, gate: Gate, inputs: Any, output: Tensor) -> None:
        self.kept[self.name] = output.detach().float().abs().movedim(gate.axis, -1).flatten(0, -2).mean(0).cpu()


def responses(learner: Learner, stream: Stream, task: int) -> Fields:
    """How strongly each gated neuron responds to a task, by layer: [channels]."""
    x, _ = stream.test(task)
    kept: Fields = {}
    handles = [gate.register_forward_hook(_Mean(name, kept)) for name, gate in gates(learner.net.body)]
    try:
        learner.logits(x[:: -(-len(x) // PROBED_ROWS)], task)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def neuron_use(found: list[Fields], told: range, beside: int = BESIDE) -> dict[str, Any]:
    """From the responses to each task: which part of a layer it uses, and what tasks have in common.

    ``used`` is the part by layer for each task in ``told``, ``any`` the part that at least one task uses, and
    ``overlap`` says for each task in ``told`` and those before it, itself included and ``beside`` of them at most, how
    many of the neurons that either uses both use.
    """
    layers = {name: torch.stack([task[name] for task in found]) for name in found[0]}  # each [tasks, channels]
    used = {name: (each >= USED * each.amax(1, keepdim=True)) & (each > 0) for name, each in layers.items()}
    together = torch.cat(list(used.values()), 1).double()
    ours = together[told.start : told.stop]
    both, own = ours @ together.T, together.sum(1)
    overlap = both / (ours.sum(1, keepdim=True) + own - both).clamp(min=1)
    return {
        "used": {name: _rounded(each.double().mean(1)[told.start :]) for name, each in used.items()},
        "any": {name: round(float(each.any(0).double().mean()), 4) for name, each in used.items()},
        "overlap": [
            _rounded(row[max(0, task + 1 - beside) : task + 1], 3) for task, row in zip(told, overlap, strict=True)
        ],
    }


def _rounded(values: Tensor, digits: int = 4) -> list[float]:
    return [round(value, digits) for value in values.tolist()]
