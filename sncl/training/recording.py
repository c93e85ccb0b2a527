"""A training step recorded as the tensor operations it consists of, and replayed without the code that led to them.

On a small network most of a step is Python, autograd's bookkeeping and the modules around each operation. A recording
is what is left without them: the very calls that a step made below autograd, those of the backward pass among them, in
their order and on the same tensors, so a replay has the bits of the step. It is to a CPU what a CUDA graph is to a GPU,
and asks the same of a step: the same operations every time, and none that is asked for its value on the host.

What a step reads that is neither an input nor made by it is a constant: parameters, buffers, states that change in
place. That nothing else was taken for one is seen by recording twice: two steps must be the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}  # below autograd these change nothing


class Value(NamedTuple):
    """An input of a recording or what one of its calls returned, by number."""

    number: int


class Constant(NamedTuple):
    """A tensor that is there before and after the step, by its place among :attr:`Recording.constants`."""

    number: int


class View(NamedTuple):
    """How a constant is seen in other constants, rather than there by itself."""

    operation: Any
    arguments: tuple[Any, ...]


class Call(NamedTuple):
    """One operation; tensors in ``arguments`` are values or constants, all else is as it was given."""

    operation: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: Any  # a value, several of them in a list, or None

    def reads(self) -> list[Value]:
        return list(_values((self.arguments, list(self.options.values()))))

    def makes(self) -> list[Value]:
        return list(_values(self.results))

    @property
    def mutates(self) -> bool:
        return bool(self.operation._schema.is_mutable)

    @property
    def draws(self) -> bool:
        """Whether it takes random numbers from torch's global generator."""
        return torch.Tag.nondeterministic_seeded in self.operation.tags


class Recording(NamedTuple):
    """The calls of one step, from ``inputs`` values to the values it returned."""

    inputs: int
    calls: list[Call]
    constants: list[Tensor]
    views: dict[int, View]  # of constants, by number
    returned: list[Value | Constant]

    @property
    def draws(self) -> bool:
        return any(call.draws for call in self.calls)

    def same_as(self, other: Recording) -> bool:
        """Whether both are the same calls on the same constants."""
        if (self.inputs, self.calls, self.views, self.returned) != (
            other.inputs,
            other.calls,
            other.views,
            other.returned,
        ) or len(self.constants) != len(other.constants):
            return False
        pairs = zip(self.constants, other.constants, strict=True)
        return all(ours is theirs or number in self.views for number, (ours, theirs) in enumerate(pairs))


class Recorder(TorchDispatchMode):
    """Notes every operation that runs within the block, below autograd."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.constants: list[Tensor] = []
        self.views: dict[int, View] = {}
        self._known: dict[int, Value | Constant] = {}
        self._alive: list[Tensor] = []  # so that no other tensor gets the identity of one that is known
        self._numbers = 0
        self.asked = False  # for a value, on the host
        for each in inputs:
            self._new(each)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nobody compiles a step that is recorded. To say so otherwise, PyTorch would load its whole compiler."""
        return False

    def _new(self, tensor: Tensor) -> Value:
        value = Value(self._numbers)
        self._numbers += 1
        self._known[id(tensor)] = value
        self._alive.append(tensor)
        return value

    def _constant(self, tensor: Tensor) -> Constant:
        constant = Constant(len(self.constants))
        self.constants.append(tensor)
        self._known[id(tensor)] = constant
        return constant

    def named(self, argument: Any) -> Any:
        """An argument with its tensors replaced by the values or constants they are."""
        if isinstance(argument, Tensor):
            return self._known.get(id(argument)) or self._constant(argument)
        if isinstance(argument, (list, tuple)):
            return [self.named(each) for each in argument]
        return argument

    def _made(self, result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return [self._made(each) for each in result]
        if not isinstance(result, Tensor):
            return None
        return self._known.get(id(result)) or self._new(result)  # what was changed in place is known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        self.asked |= _asks(func, args)
        given, chosen = tuple(self.named(each) for each in args), {key: self.named(options[key]) for key in options}
        result = func(*args, **options)
        if func in ALIASES or (_is_view(func) and not any(_values((given, list(chosen.values()))))):
            self._alias(func, given, result)
        else:
            self.calls.append(Call(func, given, chosen, self._made(result)))
        return result

    def _alias(self, func: Any, given: tuple[Any, ...], result: Any) -> None:
        """What is another name of a value, or a view of constants, is not computed again."""
        if func in ALIASES:
            self._known[id(result)] = given[0]
            self._alive.append(result)
            return
        for place, each in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            self.views[self._constant(each).number] = View(func, (*given, place))


def _asks(func: Any, args: Any) -> bool:
    """Whether the host must know values to go on: a number, or how much there is of something."""
    if torch.Tag.data_dependent_output in func.tags:
        return True
    return torch.Tag.dynamic_output_shape in func.tags and not _indexes_by_number(func, args)


def _indexes_by_number(func: Any, args: Any) -> bool:
    """Whether this picks rows by their numbers, not by truth values."""
    if func is not torch.ops.aten.index.Tensor:
        return False
    return all(each is None or each.dtype not in (torch.bool, torch.uint8) for each in args[1])


def _is_view(func: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)


def _values(nested: Any) -> Iterable[Value]:
    if isinstance(nested, Value):
        yield nested
    elif isinstance(nested, (list, tuple)) and not isinstance(nested, Constant):
        for each in nested:
            yield from _values(each)


def record(step: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> tuple[Sequence[Tensor], Recording | None]:
    """Make a step: what it returned, and what it consists of; None where it asks for values and cannot be replayed."""
    recorder = Recorder(inputs)
    with recorder:
        returned = step()
    if recorder.asked:
        return returned, None
    named = [recorder.named(each) for each in returned]
    return returned, Recording(len(inputs), recorder.calls, recorder.constants, recorder.views, named)
