"""Whether a checkpoint fits the learner it is loaded into: names, shapes and types of everything, in words."""

from __future__ import annotations

from typing import Any

import torch

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.tensors.fields import Fields, within
from sncl.training.inputs import short


def check_same(what: str, given: Fields, ours: Fields) -> None:
    """Refuse tensors that are not named, shaped and typed like ours."""
    missing, unknown = ours.keys() - given.keys(), given.keys() - ours.keys()
    if missing or unknown:
        name, there = (min(missing), "not there") if missing else (min(unknown), "unknown here")
        raise SnclError(f"this checkpoint belongs to another network: {name!r} of the {what} is {there}")
    for name, mine in ours.items():
        value = given[name]
        if value.shape != mine.shape or value.dtype != mine.dtype:
            raise SnclError(
                f"this checkpoint belongs to another network: {name!r} of the {what} is {list(value.shape)} and "
                f"{short(value.dtype)}, here {list(mine.shape)} and {short(mine.dtype)}"
            )


def check_description(description: dict[str, Any], tensors: Fields) -> None:
    """Refuse numbers that cannot be meant, before anything is made as large as they say."""
    size, grown = description["rows"], description["grown"]
    counts = [description["steps"], description["tasks"], *([] if size is None else [size]), *grown]
    if not all(type(count) is int and count >= 0 for count in counts) or grown != sorted(set(grown)):
        raise SnclError(f"this checkpoint is damaged: steps, tasks, rows and outputs are not {counts}")
    stored = sum(value.shape[0] for value in within("network", tensors).values() if value.dim())
    if grown and grown[-1] > stored:
        raise SnclError(f"this checkpoint is damaged: its network does not have the {grown[-1]} outputs it names")


def check_memory(memory: Memory, example: Fields, outputs: int) -> None:
    """Refuse remembered samples that are not like the network's inputs, or of classes it does not have."""
    stored = memory.fields
    if not stored:
        return
    for name, value in example.items():
        if name not in stored or stored[name].shape[1:] != value.shape[1:]:
            found = list(stored[name].shape[1:]) if name in stored else "missing"
            raise SnclError(
                f"this checkpoint belongs to another learner: {name!r} of a remembered sample is {found}, here "
                f"{list(value.shape[1:])}"
            )
        if stored[name].dtype != memory.precision(name, value.dtype):
            raise SnclError(
                f"this checkpoint belongs to another learner: {name!r} in memory is {short(stored[name].dtype)}, here "
                f"{short(memory.precision(name, value.dtype))}"
            )
    if "logits" in stored and stored["logits"].shape[1:] != (outputs,):
        raise SnclError(
            f"this checkpoint belongs to another learner: remembered logits are {list(stored['logits'].shape[1:])}, "
            f"and the network has {outputs} outputs"
        )
    low, high = (int(value) for value in stored["y"].aminmax())
    if low < 0 or high >= outputs:
        raise SnclError(
            f"this checkpoint belongs to another learner: its memory holds the labels {low} to {high}, and the network "
            f"has {outputs} outputs"
        )


def check_moments(state: dict[int, Fields], shapes: list[torch.Size]) -> None:
    """Refuse an optimiser's state that is not of parameters of these shapes; scalars and factors of a moment may be."""
    unknown = [number for number in state if not 0 <= number < len(shapes)]
    if unknown:
        raise SnclError(
            f"this checkpoint belongs to another optimiser: it knows a parameter {unknown[0]}, here there "
            f"are {len(shapes)}"
        )
    for number, values in state.items():
        for name, value in values.items():
            ours = shapes[number]
            fits = (there in (1, here) for there, here in zip(value.shape, ours, strict=False))
            if value.dim() == len(ours) and not all(fits):
                raise SnclError(
                    f"this checkpoint belongs to another optimiser: {name!r} of parameter {number} is "
                    f"{list(value.shape)}, here {list(ours)}"
                )
