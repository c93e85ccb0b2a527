"""A computation recorded as the tensor operations it consists of, to be replayed without the code that led to them.

On a small network most of a step is Python, autograd's bookkeeping and the modules around each operation. A recording
is what is left without them: the very calls that were made below autograd, those of the backward pass among them, in
their order and on the same tensors, so a replay has the same bits. It is to a CPU what a CUDA graph is to a GPU, and
asks the same of a step: the same operations every time, and none that is asked for its value on the host.

What is read that is neither an input nor made by a call is a constant: parameters, buffers, states that change in
place. That nothing else was taken for one is seen by recording twice: both must be the same calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}  # below autograd these change nothing
MOST_BYTES = 2**26  # that calls make: of more, so little is spent around the operations that it is not worth keeping


@dataclass(frozen=True)
class Value:
    """An input of a recording or what one of its calls returned, by number."""

    number: int


@dataclass(frozen=True)
class Constant:
    """A tensor that is there before and after, by its place among :attr:`Recording.constants`."""

    number: int


class ConstantView(NamedTuple):
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
        return values_in((self.arguments, tuple(self.options.values())))

    def makes(self) -> list[Value]:
        return values_in(self.results)

    @property
    def mutates(self) -> bool:
        return bool(written_into(self.operation))

    @property
    def draws(self) -> bool:
        """Whether it takes random numbers from torch's global generator."""
        return torch.Tag.nondeterministic_seeded in self.operation.tags

    def mutated(self) -> list[Any]:
        """The values and constants it writes into."""
        given = self.arguments
        places = written_into(self.operation)
        written = [given[place] for place in places if place < len(given)]
        written += [self.options[name] for name in places.values() if name in self.options]
        return [part for each in written for part in (each if type(each) is list else [each])]


class Recording(NamedTuple):
    """The calls from ``inputs`` values to those that were returned."""

    inputs: int
    calls: list[Call]
    constants: list[Tensor]
    views: dict[int, ConstantView]  # of constants, by number
    returned: list[Value | Constant]
    tensors: list[Tensor]  # what each value was, by number

    @property
    def draws(self) -> bool:
        return any(call.draws for call in self.calls)

    @property
    def owned(self) -> list[Tensor]:
        """The constants that are no views of others."""
        return [tensor for number, tensor in enumerate(self.constants) if number not in self.views]

    def reads(self) -> Counter[Value]:
        """How often each value is read, by calls and by who gets what is returned."""
        found = Counter(each for call in self.calls for each in call.reads())
        found.update(each for each in self.returned if isinstance(each, Value))
        return found

    def changed(self) -> set[int]:
        """The storages of the values that calls write into."""
        parts = (part for call in self.calls for part in call.mutated())
        return {storage(self.tensors[part.number]) for part in parts if isinstance(part, Value)}

    def same_as(self, other: Recording) -> bool:
        """Whether both are the same calls on the same constants."""
        ours, theirs = (each._replace(constants=[], tensors=[]) for each in (self, other))
        if ours != theirs or len(self.constants) != len(other.constants):
            return False
        pairs = zip(self.constants, other.constants, strict=True)
        return all(mine is its or number in self.views for number, (mine, its) in enumerate(pairs))


class Recorder(TorchDispatchMode):
    """Notes every operation that runs within the block, below autograd."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.constants: list[Tensor] = []
        self.views: dict[int, ConstantView] = {}
        self.tensors: list[Tensor] = []
        self._known: dict[int, Value | Constant] = {}
        self._aliases: list[Tensor] = []  # alive, so that no other tensor gets the identity of one that is known
        self._bytes = 0
        self.refused = False
        for each in inputs:
            self._new(each)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nobody compiles a step that is recorded. To say so otherwise, PyTorch would load its whole compiler."""
        return False

    def _new(self, tensor: Tensor) -> Value:
        value = Value(len(self.tensors))
        self._known[id(tensor)] = value
        self.tensors.append(tensor)
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
        if id(result) not in self._known:  # what was changed in place is known
            self._bytes += result.numel() * result.element_size()
            self._new(result)
        return self._known[id(result)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if self.refused:
            return func(*args, **options)
        self.refused = _asks(func, args) or torch.Tag.inplace_view in func.tags
        given, chosen = tuple(self.named(each) for each in args), {key: self.named(options[key]) for key in options}
        result = func(*args, **options)
        if func in ALIASES or (is_view(func) and not any(values_in((given, list(chosen.values()))))):
            self._alias(func, given, result)
        else:
            self._note(Call(func, given, chosen, self._made(result)))
        return result

    def _note(self, call: Call) -> None:
        self.calls.append(call)
        if self._bytes > MOST_BYTES:
            self.refused = True

    def _alias(self, func: Any, given: tuple[Any, ...], result: Any) -> None:
        """What is another name of a value, or a view of constants, is not computed again."""
        if func in ALIASES:
            self._known[id(result)] = given[0]
            self._aliases.append(result)
            return
        for place, each in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            self.views[self._constant(each).number] = ConstantView(func, (*given, place))


def storage(tensor: Tensor) -> int:
    """Where the numbers of a tensor lie."""
    return tensor.untyped_storage().data_ptr()


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


@cache
def is_view(func: Any) -> bool:
    """Whether what an operation returns lies where its arguments do."""
    return any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)


@cache
def written_into(func: Any) -> dict[int, str]:
    """The arguments that an operation writes into: places and names."""
    arguments = ((place, each.name, each.alias_info) for place, each in enumerate(func._schema.arguments))
    return {place: name for place, name, alias in arguments if alias is not None and alias.is_write}


def values_in(nested: Any) -> list[Value]:
    """The values in nested lists."""
    found: list[Value] = []
    _gather((nested,), found)
    return found


def _gather(nested: Iterable[Any], found: list[Value]) -> None:
    for each in nested:
        if type(each) is Value:
            found.append(each)
        elif isinstance(each, (list, tuple)):
            _gather(each, found)


def record(run: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> Recording | None:
    """Run once, and note what it consists of; None where that cannot be replayed.

    So it is where a value is asked for, an input is changed or comes twice, or much is computed.
    """
    recorder = Recorder(inputs)
    with recorder:
        returned = run()
    named = [recorder.named(each) for each in returned]
    found = Recording(len(inputs), recorder.calls, recorder.constants, recorder.views, named, recorder.tensors)
    if recorder.refused or len(set(map(id, inputs))) < len(inputs) or found.changed() & set(map(storage, inputs)):
        return None
    return found
