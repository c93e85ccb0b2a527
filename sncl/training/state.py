"""What a checkpoint holds of a learner, and how it is checked when it comes back.

Tensors decide what happens next and are named ``group/name``; the description is plain data that says what they belong
to. Outputs and parameters that a learner got on its way are added again before its tensors are loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Fields, inputs, under, within
from sncl.training.descent import Optimizer
from sncl.training.signature import described_zeros

if TYPE_CHECKING:
    from sncl.training.learner import Learner

FORMAT = 5


def tensors_of(learner: Learner) -> Fields:
    """Every tensor that decides what happens next, by name."""
    ready = learner.ready
    return {
        **under("network", ready.net.body.state_dict()),
        **under("ema", ready.average.slow if ready.average is not None else {}),
        **under("method", learner.method.state_dict()),
        **under("optimizer", _moments(ready.optimizer)),
        **under("memory", learner.memory.state() if learner.memory is not None else {}),
        **under("random", learner.random.state()),
        **under("example", learner.signature.example),
    }


def description_of(learner: Learner) -> dict[str, Any]:
    """What :func:`tensors_of` belong to, as plain data."""
    return {
        "format": FORMAT,
        **_kind(learner),
        "steps": learner.steps,
        "tasks": learner.tasks,
        "example": learner.signature.description(),
        "rows": learner.usual_size,
        "grown": learner.grown,
    }


def restore(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """Bring a learner to where :func:`tensors_of` and :func:`description_of` were taken."""
    restore_network(learner, tensors, description)
    _load_moments(learner.ready.optimizer, within("optimizer", tensors))
    if learner.memory is not None:
        learner.memory.load(within("memory", tensors))
    learner.random.load(within("random", tensors))
    learner.steps = description["steps"]
    learner.usual_size = description["rows"]
    learner.interrupted = False
    learner.ready.engine.forget()


def restore_network(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """Only the network and the method, enough to predict with, also on another device."""
    if description.get("format") != FORMAT:
        found = description.get("format")
        raise SnclError(f"this checkpoint was written by another version of sncl (format {found}, here {FORMAT})")
    ours = _kind(learner)
    theirs = {key: description.get(key) for key in ours}
    if ours != theirs:
        raise SnclError(f"this checkpoint belongs to another learner: it has {theirs}, this learner {ours}")
    learner.prepare(inputs(within("example", tensors) or described_zeros(description["example"])))
    _add_what_was_added(learner, description)
    net, average = learner.ready.net, learner.ready.average
    try:
        net.body.load_state_dict(within("network", tensors))
        if average is not None:
            average.load(within("ema", tensors))
        learner.method.load_state_dict(within("method", tensors))
    except RuntimeError as error:
        what = str(error).replace("\n", " ")
        raise SnclError(f"this checkpoint belongs to another network: {what}") from error


def _kind(learner: Learner) -> dict[str, Any]:
    """What must be the same in the learner that loads a checkpoint."""
    return {
        "method": type(learner.method).__name__,
        "memory": learner.memory.capacity if learner.memory is not None else 0,
        "ema": learner.ema,
        "tracks_moments": learner.tracks_moments,
    }


def _add_what_was_added(learner: Learner, description: dict[str, Any]) -> None:
    """What methods add with each task, and outputs for new classes."""
    while learner.tasks < description["tasks"]:
        learner.expand()
    grown, here = description["grown"], learner.grown
    if here != grown[: len(here)]:
        raise SnclError(f"this checkpoint belongs to another learner: its outputs grew to {grown}, here {here}")
    for outputs in grown[len(here) :]:
        learner.grow(outputs)


def _moments(optimizer: Optimizer) -> Fields:
    """The optimiser's state: ``number of a parameter/name``."""
    return {
        f"{number}/{name}": torch.as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def _load_moments(optimizer: Optimizer, moments: Fields) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        number, _, name = key.partition("/")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
