"""Computations that are made as they are written and, once others like them have come, replayed.

A replay has the bits of what is written, so which of the two is made matters to nobody. It is chosen where all that is
run is known to be the same operations every time (:mod:`sncl.training.unchanged`), and nothing was replaced since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sncl.methods.method import Outcome
from sncl.tensors.random import Randomness
from sncl.training.engine import Eager, Graph
from sncl.training.finite import FiniteCheck
from sncl.training.recording import Recording, record
from sncl.training.replaying import CallList
from sncl.training.simplifying import simplified
from sncl.training.step import Step, StepInput
from sncl.training.unchanged import Unchanged, are_known, are_usual

CALLS_BEFORE = 2  # of one form, before one is recorded: most forms do not come again
MOST_FORMS = 64  # that are told apart at a time
MOST_CHANGES = 8  # of what is read: where more is replaced all the time, recording is not worth it


@dataclass
class Form:
    """What is known of computations whose inputs have the same shapes; ``names`` are those of what they return."""

    names: tuple[list[str], ...] = ()
    calls: int = 0
    refused: bool = False
    first: Recording | None = None
    unchanged: Unchanged | None = None
    replay: CallList | None = None
    finite_check: FiniteCheck | None = None  # at what a replay changes


class Recorded:
    """The computations of ``parts``, objects whose attributes decide what is computed, by the form of their inputs."""

    def __init__(self, parts: Sequence[object]) -> None:
        self.parts = parts
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._forms: dict[Hashable, Form] = {}
        self._changes = 0
        self.last: Form | None = None  # the form of the last computation, if it was a replay

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}  # a copy has tensors of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parts = state["parts"]
        self.forget()

    def replayable(self, form: Hashable) -> tuple[CallList, Form] | None:
        """What replays a computation of this form, unless it must be made as it is written."""
        self.last, known = None, self._forms.get(form)
        if known is None or known.unchanged is None or known.replay is None:
            return None
        if known.unchanged.holds():
            self.last = known
            return known.replay, known
        del self._forms[form]
        self._changes += 1
        return None

    def written(self, form: Hashable, inputs: Sequence[Tensor], run: Callable[[], Sequence[Tensor]]) -> Form:
        """Make a computation as it is written, and record it where others of its form have come."""
        known = self._known(form)
        known.calls += 1
        if known.refused or known.calls <= CALLS_BEFORE:
            run()
            return known
        known.refused = True  # also where an error ends it
        if self._changes > MOST_CHANGES or not (are_usual() and are_known(self.parts) and all(map(_is_plain, inputs))):
            run()
            return known
        before = Unchanged(self.parts, [])
        recording = record(run, inputs)
        if recording is not None and before.holds():
            self._note(known, recording)
        return known

    def _note(self, known: Form, recording: Recording) -> None:
        if known.first is None:
            known.first, known.refused = recording._replace(tensors=[]), False
        elif recording.same_as(known.first):
            known.first, known.refused = None, False
            known.unchanged, known.replay = Unchanged(self.parts, recording.owned), CallList(simplified(recording))

    def _known(self, form: Hashable) -> Form:
        """What is known of this form; those that did not come again are forgotten where there are many."""
        if form not in self._forms:
            if len(self._forms) >= MOST_FORMS:
                self._forms = {each: known for each, known in self._forms.items() if known.replay is not None}
            if len(self._forms) >= MOST_FORMS:
                self._forms = {}
            self._forms[form] = Form()
        return self._forms[form]


def form_of(inputs: Sequence[Tensor]) -> Hashable:
    """What inputs have in common that the same recording can serve."""
    return tuple([(each.shape, each.dtype, each.is_contiguous()) for each in inputs])


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor lies on the host in one piece: others are read by other operations."""
    return type(tensor) is Tensor and tensor.layout is torch.strided and tensor.is_contiguous()


class RecordedSteps(Eager):
    """The step as it is written and, once steps like it have come, a replay of the operations it consists of."""

    def __init__(self, step: Step, random: Randomness, device: torch.device) -> None:
        super().__init__(step, random, device)
        parts = (step.method, step.net, step.transform, step.optimizer)
        self._recorded = Recorded(parts if step.clip is None else (*parts, step.clip))

    def __call__(self, given: StepInput, usual: bool) -> Outcome:
        stored = self.step.memory.tensors if given.draws and self.step.memory is not None else {}
        read = [*given.batch.values(), *given.drawn(), *stored.values()]
        form = (*given.batch, len(given.draws), *stored, form_of(read))
        found = self._recorded.replayable(form)
        if found is None:
            return self._written(given, form, read)
        replay, known = found
        if replay.draws:
            with self.random.as_global("gates"):
                values = iter(replay(read))
        else:
            values = iter(replay(read))
        return Outcome(*[{name: next(values) for name in names} for names in known.names])

    def _written(self, given: StepInput, form: Hashable, read: Sequence[Tensor]) -> Outcome:
        made: list[Outcome] = []

        def run() -> list[Tensor]:
            made.append(self.step(given))
            return [value for part in made[0] for value in part.values()]

        with self.random.as_global("gates"):
            known = self._recorded.written(form, read, run)
        known.names = tuple(list(part) for part in made[0])
        if known.replay is not None:  # which leaves no gradients; older ones would mislead
            self.step.net.zero_grad()
            self.step.optimizer.zero_grad()
        return made[0]

    def finite_check(self) -> FiniteCheck | None:
        last = self._recorded.last
        if last is None:
            return super().finite_check()
        if last.finite_check is None:  # as long as nothing is replaced, the same tensors are looked at
            last.finite_check = super().finite_check()
        return last.finite_check

    def forget(self) -> None:
        self._recorded.forget()


def make_engine(name: str, step: Step, random: Randomness, device: torch.device) -> Eager:
    """The engine of that name for a step. On a CPU, steps as they are written may be replayed."""
    if name == "graph":
        return Graph(step, random, device)
    alone = device.type == "cpu" and step.net.sharing is None
    return (RecordedSteps if alone and step.method.capturable else Eager)(step, random, device)
