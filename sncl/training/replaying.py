"""Recorded steps made into functions: what changes nothing is left out, and the rest written down as straight code.

Nothing here changes a bit of what is computed: left out are results that nobody reads, transpositions that undo each
other, and copies of values that nobody reads afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from sncl.methods.method import Outcome
from sncl.training.descent import Descent
from sncl.training.recording import Call, Constant, Recording, Value, record
from sncl.training.step import Step

aten = torch.ops.aten

Replay = Callable[[Sequence[Tensor]], list[Tensor]]

STEPS_BEFORE = 2  # of one form, before one is recorded: most forms do not come again


class RecordedStep:
    """Steps that read tensors of the same shapes: made as they are written, then recorded twice, then replayed.

    Where the two recordings differ, or a step asks for values, all are made as they are written.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.draws = True  # random numbers, as far as is known
        self._first: Recording | None = None
        self._replay: Replay | None = None
        self._names: list[list[str]] = []  # of what a step returns
        self._refused = False

    @property
    def replays(self) -> bool:
        return self._replay is not None

    def __call__(self, step: Callable[[], Outcome], read: Sequence[Tensor]) -> Outcome:
        """Make this step, which reads these tensors."""
        if self._replay is not None:
            found = iter(self._replay(read))
            return Outcome(*(dict(zip(names, found, strict=False)) for names in self._names))
        self.steps += 1
        if self._refused or self.steps <= STEPS_BEFORE:
            return step()
        return self._record(step, read)

    def _record(self, step: Callable[[], Outcome], read: Sequence[Tensor]) -> Outcome:
        made: list[Outcome] = []

        def flat() -> list[Tensor]:
            made.append(step())
            return [value for part in made[0] for value in part.values()]

        _, recording = record(flat, read)
        if recording is None or (self._first is not None and not recording.same_as(self._first)):
            self._refused = True
        elif self._first is None:
            self._first = recording
        else:
            self._names = [list(part) for part in made[0]]
            self._replay, self.draws, self._first = compiled(simplified(recording)), recording.draws, None
        return made[0]


def is_replayable(step: Step) -> bool:
    """Whether all code of a step is known to be the same operations every time: PyTorch's own modules, and ours.

    A network of somebody else may count its passes, flip coins or compute with NumPy, which no recording shows.
    """
    ours = (step.method, step.transform, step.optimizer)
    return (
        step.method.capturable
        and isinstance(step.optimizer, Descent)
        and all(_is_known(each) for each in (*ours, *step.method.modules(), *step.net.modules()))
        and not any(parameter._backward_hooks for parameter in step.net.parameters())
    )


def _is_known(part: Any) -> bool:
    """Whether an object is of PyTorch's or our own classes, and calls nothing else."""
    if isinstance(part, nn.Module):
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
        if "forward" in vars(part) or not all(_is_known(hook) for hook in chain(*(each.values() for each in hooks))):
            return False
    return type(part).__module__.partition(".")[0] in ("torch", "sncl")


def simplified(recording: Recording) -> Recording:
    """The same without calls that change nothing."""
    calls, names = _without_copies(*_without_transpositions(recording.calls))
    returned = [names.get(each, each) for each in recording.returned]
    return recording._replace(calls=_needed(calls, returned), returned=returned)


def _renamed(nested: Any, names: dict[Any, Any]) -> Any:
    if isinstance(nested, (Value, Constant)):
        return names.get(nested, nested)
    if isinstance(nested, (list, tuple)):
        return type(nested)(_renamed(each, names) for each in nested)
    return nested


def _with_names(call: Call, names: dict[Any, Any]) -> Call:
    options = {key: _renamed(value, names) for key, value in call.options.items()}
    return Call(call.operation, _renamed(call.arguments, names), options, _renamed(call.results, names))


def _without_transpositions(calls: list[Call]) -> tuple[list[Call], dict[Any, Any]]:
    """The transposition of a transposition is the value itself."""
    kept: list[Call] = []
    names: dict[Any, Any] = {}
    origin: dict[Any, Any] = {}  # of what was transposed
    for each in calls:
        call = _with_names(each, names)
        if call.operation is aten.t.default:
            source = call.arguments[0]
            if source in origin:
                names[call.results] = origin[source]
                continue
            origin[call.results] = source
        kept.append(call)
    return kept, names


def _without_copies(calls: list[Call], names: dict[Any, Any]) -> tuple[list[Call], dict[Any, Any]]:
    """A copy in a tensor of its own, of a value that nobody reads afterwards, is that value.

    Autograd makes one of every gradient while a recorder, too, holds it.
    """
    last = {value: place for place, call in enumerate(calls) for value in call.reads()}
    kept: list[Call] = []
    names = dict(names)
    for place, each in enumerate(calls):
        call = _with_names(each, names)
        empty = kept[-1] if kept else None
        if (
            call.operation is aten.copy_.default
            and empty is not None
            and empty.operation is aten.new_empty_strided.default
            and empty.arguments[0] == call.arguments[1]
            and empty.results == call.arguments[0]
            and isinstance(call.arguments[1], Value)
            and last[each.arguments[1]] == place
        ):
            kept.pop()
            names[call.results] = call.arguments[1]
            continue
        kept.append(call)
    return kept, names


def _needed(calls: list[Call], returned: Sequence[Any]) -> list[Call]:
    """Those calls that change a tensor, draw random numbers, or make what others need."""
    needed = set(returned)
    kept: list[Call] = []
    for call in reversed(calls):
        if call.mutates or call.draws or needed.intersection(call.makes()):
            needed.update(call.reads())
            kept.append(call)
    return kept[::-1]


def compiled(recording: Recording) -> Replay:
    """A function of the inputs that makes the calls again and returns what the step returned."""
    known: dict[str, Any] = {f"c{number}": value for number, value in enumerate(recording.constants)}
    writer = _Writer(recording, known)
    code = compile("\n".join(writer.lines()), "<recorded step>", "exec")
    exec(code, known)  # made of nothing but operations and numbers
    replay = known["replay"]

    def run(inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch._C._AutoDispatchBelowAutograd():
            found: list[Tensor] = replay(*inputs)
        return found

    return run


class _Writer:
    """Writes a recording as a Python function; ``known`` gets what the function refers to.

    A variable is used again for another value once nobody reads its own, which frees that.
    """

    def __init__(self, recording: Recording, known: dict[str, Any]) -> None:
        self.recording, self.known = recording, known
        self.variables = {Value(number): f"v{number}" for number in range(recording.inputs)}
        self.free: list[str] = []
        self.made = recording.inputs

    def lines(self) -> list[str]:
        calls, returned = self.recording.calls, self.recording.returned
        last = {value: place for place, call in enumerate(calls) for value in (*call.makes(), *call.reads())}
        last.update((each, len(calls)) for each in returned if isinstance(each, Value))
        names = ", ".join(f"v{number}" for number in range(self.recording.inputs))
        lines = [f"def replay({names}):"]
        for place, call in enumerate(calls):
            lines.append(f"    {self._line(place, call)}")
            for value in {*call.makes(), *call.reads()}:
                if last[value] == place:
                    self.free.append(self.variables.pop(value))
        return [*lines, f"    return [{', '.join(self._written(each) for each in returned)}]"]

    def _line(self, place: int, call: Call) -> str:
        self.known[f"f{place}"] = getattr(call.operation, "_op", call.operation)
        given = [self._written(each) for each in call.arguments]
        given += [f"{name}={self._written(each)}" for name, each in call.options.items()]
        made = self._target(call.results)
        return f"{made}f{place}({', '.join(given)})"

    def _target(self, results: Any) -> str:
        if results is None or isinstance(results, Constant):
            return ""
        if isinstance(results, Value):
            return f"{self._variable(results)} = "
        return ", ".join("_" if each is None else self._variable(each) for each in results) + ", = "

    def _variable(self, value: Value) -> str:
        if value not in self.variables:
            self.variables[value] = self.free.pop() if self.free else f"v{self.made}"
            self.made += 1
        return self.variables[value]

    def _written(self, argument: Any) -> str:
        if isinstance(argument, Value):
            return self.variables[argument]
        if isinstance(argument, Constant):
            return f"c{argument.number}"
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(self._written(each) for each in argument)}]"
        if argument is None or type(argument) in (bool, int):
            return repr(argument)
        name = f"k{len(self.known)}"
        self.known[name] = argument
        return name
