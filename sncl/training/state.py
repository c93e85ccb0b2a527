"""What a checkpoint holds of a learner, and how it is checked when it comes back.

Tensors decide what happens next and are named ``group/name``; the description is plain data that says what they belong
to. Outputs and parameters that a learner got on its way are added again before its tensors are loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.preprocessing import Preprocessing
from sncl.tensors.fields import Fields, inputs, under, within
from sncl.tensors.random import GLOBAL
from sncl.training.assembly import make_random
from sncl.training.descent import Descending, Optimizer
from sncl.training.fitting import check_description, check_memory, check_moments, check_same
from sncl.training.signature import described_zeros

if TYPE_CHECKING:
    from sncl.training.learner import Learner

FORMAT = 5
UNFIT = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    MemoryError,
)  # what a wrong value may lead to


def tensors_of(learner: Learner) -> Fields:
    """Every tensor that decides what happens next, by name."""
    ready = learner.ready
    return {
        **under("network", ready.net.body.state_dict()),
        **under("ema", ready.average.slow if ready.average is not None else {}),
        **under("method", learner.method.state_dict()),
        **under("optimizer", _moments(ready.optimizer)),
        **under("clip", ready.clip.state() if ready.clip is not None else {}),
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
        "grown": [*learner.grown],
        **_origin(learner),
    }


def _origin(learner: Learner) -> dict[str, Any]:
    """Of a learner that comes from a run: that run, and the preprocessing as it is now."""
    if learner.origin is None or learner.preprocessing is None:
        return {}
    return {"origin": {"experiment": learner.origin, "preprocessing": learner.preprocessing.to_json()}}


def restore(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """Bring a learner to where :func:`tensors_of` and :func:`description_of` were taken, or leave it as it is."""
    _rehearsed(_restore, learner, tensors, description)


def restore_network(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """Only the network and the method, enough to predict with, also on another device; or leave it as it is."""
    _rehearsed(_restore_network, learner, tensors, description)


def restore_memory(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """Only the memory of a learner whose network is restored; or leave it as it is."""
    _rehearsed(_restore_memory, learner, tensors, description)


def _rehearsed(
    load: Callable[[Learner, Fields, dict[str, Any]], None],
    learner: Learner,
    tensors: Fields,
    description: dict[str, Any],
) -> None:
    """Load into a copy first: what does not fit is found there, and the learner stays as it is."""
    random = make_random(learner.random.seed, learner.method, learner.device)
    random.load(learner.random.state())
    known = {id(learner.random): random} | {id(each): each for each in (learner.transform, learner.make_optimizer)}
    devices = [learner.device] if learner.device.type == "cuda" else []
    with GLOBAL, torch.random.fork_rng(devices=devices):
        try:
            twin = deepcopy(learner, known)
        except (RuntimeError, TypeError, AttributeError):  # a network that cannot be copied
            twin = learner
        try:
            load(twin, tensors, description)
        except UNFIT as error:
            what = f"{type(error).__name__}: {error}".replace("\n", " ")
            raise SnclError(f"this checkpoint belongs to another learner or is damaged ({what})") from error
    load(learner, tensors, description)


def _restore(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    _restore_network(learner, tensors, description)
    _load_moments(learner, within("optimizer", tensors))
    clip, clipped = learner.ready.clip, within("clip", tensors)
    check_same("clip", clipped, {} if clip is None else clip.state())
    if clip is not None:
        clip.load(clipped)
    _restore_memory(learner, tensors, description)
    random = within("random", tensors)
    check_same("random numbers", random, learner.random.state())
    learner.random.load(random)
    learner.steps = description["steps"]
    learner.usual_size = description["rows"]
    learner.interrupted = False
    learner.ready.engine.forget()
    if learner.preprocessing is not None and "origin" in description:  # its encoder learns along
        learner.preprocessing = Preprocessing.from_json(description["origin"]["preprocessing"])


def _restore_memory(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    if learner.memory is not None:
        learner.memory.load(within("memory", tensors))
        check_memory(learner.memory, learner.signature.example, learner.outputs)


def _restore_network(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    if description.get("format") != FORMAT:
        found = description.get("format")
        raise SnclError(
            f"this checkpoint was written by another version of sncl (format {found}, here {FORMAT}); start over, or "
            "use that version"
        )
    ours = _kind(learner)
    theirs = {key: description.get(key) for key in ours}
    if ours != theirs:
        raise SnclError(f"this checkpoint belongs to another learner: it has {theirs}, this learner {ours}")
    check_description(description, tensors)
    example = {name: value.nan_to_num() for name, value in within("example", tensors).items()}
    learner.prepare(inputs(example or described_zeros(description["example"])))
    _add_what_was_added(learner, tensors, description)
    net, average = learner.ready.net, learner.ready.average
    check_same("network", within("network", tensors), net.body.state_dict())
    check_same("ema", within("ema", tensors), {} if average is None else average.slow)
    check_same("method", within("method", tensors), learner.method.state_dict())
    net.body.load_state_dict(within("network", tensors))
    if average is not None:
        average.load(within("ema", tensors))
    learner.method.load_state_dict(within("method", tensors))
    learner.watch.restart()


def _kind(learner: Learner) -> dict[str, Any]:
    """What must be the same in the learner that loads a checkpoint."""
    usual = learner.make_optimizer
    return {
        "method": type(learner.method).__name__,
        "memory": learner.memory.capacity if learner.memory is not None else 0,
        "ema": learner.ema,
        "clip": learner.clip or None,  # which older checkpoints do not name, nor this one
        "momentum": usual.momentum or None if isinstance(usual, Descending) else None,
    }


def _add_what_was_added(learner: Learner, tensors: Fields, description: dict[str, Any]) -> None:
    """What methods add with each task, and outputs for new classes."""
    if not learner.method.expands:
        learner.tasks = description["tasks"]
    elif description["tasks"] > len(within("network", tensors)) + len(within("method", tensors)):
        raise SnclError(f"this checkpoint is damaged: there is nothing of the {description['tasks']} tasks it names")
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


def _load_moments(learner: Learner, moments: Fields) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        number, _, name = key.partition("/")
        state.setdefault(int(number), {})[name] = value
    groups = learner.method.parameter_groups(learner.net, learner.lr)
    check_moments(state, [parameter.shape for group in groups for parameter in group["params"]])
    optimizer = learner.ready.optimizer
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
