"""A pickle read as data: its opcodes are followed, and nothing is imported, called or built.

An unpickler does what its file says. This reader makes bytes, texts, numbers, tuples, lists and dictionaries only; an
object stays a record of the name, the arguments and the state that the file gives for it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ARRAYS = {"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"}  # before numpy 2, and since
DTYPE, ENCODED = "numpy.dtype", "_codecs.encode"
ALLOWED = {*ARRAYS, "numpy.ndarray", DTYPE, ENCODED}
LONGEST_KEY = 100  # of a dictionary
ARRAY_STATE = 5  # version, shape, dtype, whether in Fortran order, bytes


class PickledName(NamedTuple):
    """What the file would import."""

    name: str


@dataclass(eq=False)
class PickledObject:
    """What the file would build."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def read_pickle(data: bytes) -> Any:
    """The value in a pickle; a ValueError where it is damaged or asks for more than arrays consist of."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.stack.pop()
            if opcode.name not in OPERATIONS:
                raise ValueError(f"it holds {opcode.name}, which no array needs")
            OPERATIONS[opcode.name](machine, argument)
    except (LookupError, TypeError, AttributeError, OverflowError, Warning) as error:  # escapes of a damaged text warn
        raise ValueError("it is damaged") from error
    raise ValueError("it has no end")


def array_of_bytes(value: Any) -> NDArray[np.uint8] | None:
    """The array of two axes and unsigned bytes that a record describes; None if it describes anything else."""
    if not isinstance(value, PickledObject) or value.name not in ARRAYS:
        return None
    if not isinstance(value.state, tuple) or len(value.state) != ARRAY_STATE:
        return None
    _, shape, kind, fortran, stored = value.state
    if not (isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(axis, int) for axis in shape)):
        return None
    data = raw_bytes(stored)
    if not is_unsigned_byte(kind) or data is None or min(shape) < 0 or shape[0] * shape[1] != len(data):
        return None
    return np.frombuffer(data, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


def is_unsigned_byte(kind: Any) -> bool:
    """Whether a record describes the type of unsigned bytes, without fields inside."""
    if not isinstance(kind, PickledObject) or kind.name != DTYPE or not kind.arguments:
        return False
    code, state = kind.arguments[0], kind.state
    plain = state is None or (isinstance(state, tuple) and all(part is None for part in state[2:5]))
    return isinstance(code, str | bytes) and code in ("u1", b"u1") and plain


def raw_bytes(stored: Any) -> bytes | None:
    """Bytes as they are, or from the text that Python 3 puts into a pickle of protocol 2."""
    if isinstance(stored, PickledObject) and stored.name == ENCODED and len(stored.arguments) == 2:
        text, encoding = stored.arguments
        if isinstance(text, str) and isinstance(encoding, str) and encoding == "latin1":
            return text.encode("latin1") if all(character <= "\xff" for character in set(text)) else None
    return stored if isinstance(stored, bytes) else None


def _key(value: Any) -> str | bytes | None:
    encoded = isinstance(value, PickledObject) and isinstance(value.arguments[0], str)
    text = value.arguments[0] if encoded else value
    if not isinstance(text, str | bytes) or len(text) > LONGEST_KEY:
        return None
    return raw_bytes(value) if encoded else text


class _Machine:
    """The stack and the memo of a pickle that is followed."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        """The last values, in their order."""
        if count > len(self.stack):
            raise IndexError
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        taken, self.stack = self.stack, self.marks.pop()
        return taken

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def name(self, module: Any, name: Any) -> None:
        full = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "something without a name"
        if full not in ALLOWED:
            raise ValueError(f"it asks for {full}, which no array needs")
        self.push(PickledName(full))

    def reduce(self) -> None:
        called, arguments = self.pop(2)
        if not isinstance(called, PickledName) or not isinstance(arguments, tuple):
            raise ValueError("it calls something that has no name")
        self.push(PickledObject(called.name, arguments))

    def build(self) -> None:
        built, state = self.pop(2)
        if not isinstance(built, PickledObject):
            raise ValueError("it gives a state to something that has none")
        built.state = state
        self.push(built)

    def extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("it appends to something that is no list")
        self.stack[-1].extend(values)

    def put(self, pairs: list[Any]) -> None:
        """Entries of a dictionary; keys are short texts or bytes, so nothing is compared at length or in depth."""
        entries, keys = self.stack[-1], [_key(key) for key in pairs[::2]]
        if not isinstance(entries, dict) or len(pairs) % 2 or None in keys:
            raise ValueError("it puts an entry where none belongs")
        entries.update(zip(keys, pairs[1::2], strict=True))


Operation = Callable[[_Machine, Any], None]


def _dictionary(machine: _Machine, _: Any) -> None:
    pairs = machine.since_mark()
    machine.push({})
    machine.put(pairs)


CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
AS_THEY_ARE: tuple[str, ...] = (
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "UNICODE",
    "BINUNICODE",
)
AS_THEY_ARE += ("SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
STRINGS_OF_PYTHON_2 = ("STRING", "BINSTRING", "SHORT_BINSTRING")

OPERATIONS: dict[str, Operation] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    **{name: lambda machine, _, make=make: machine.push(make()) for name, make in CONSTANTS.items()},  # type: ignore[misc]
    **{name: lambda machine, value: machine.push(value) for name in AS_THEY_ARE},
    **{name: lambda machine, value: machine.push(value.encode("latin1")) for name in STRINGS_OF_PYTHON_2},
    **{name: lambda machine, place: machine.remember(place) for name in ("PUT", "BINPUT", "LONG_BINPUT")},
    **{name: lambda machine, place: machine.push(machine.memo[place]) for name in ("GET", "BINGET", "LONG_BINGET")},
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    "MARK": lambda machine, _: machine.mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.pop(3))),
    "LIST": lambda machine, _: machine.push(machine.since_mark()),
    "DICT": _dictionary,
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.put(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.put(machine.since_mark()),
    "GLOBAL": lambda machine, both: machine.name(*both.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.name(*machine.pop(2)),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}
