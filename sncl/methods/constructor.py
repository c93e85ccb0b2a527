"""What decides a method that is none of ours: the plain arguments of its constructor, and its code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.methods.table import Entry, Settings, Value

OwnMethod = str | Method | type[Method] | Entry  # what may be given where a method is asked for
PLAIN = (bool, int, float, str)
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
DEEPEST = 8  # objects inside objects that are compared


def constructor_settings(kind: type[Method], instead: Mapping[str, Value] | None = None) -> Settings:
    """The settings of a class of methods, which are the plain arguments of its constructor, with their usual values.

    ``instead`` are those an object was made with: they stand where there is no usual value, or one of another type.
    """
    given, found = instead or {}, {}
    for parameter in parameters(kind):
        usual = parameter.default
        if parameter.name in given and type(usual) is not type(given[parameter.name]):
            usual = given[parameter.name]
        if usual is inspect.Parameter.empty:
            raise SnclError(
                f"{kind.__name__} needs a value for `{parameter.name}`: give it a usual value, or give an object"
            )
        if isinstance(usual, PLAIN):
            found[parameter.name] = usual
    return found


def instance_settings(method: Method) -> Settings:
    """The settings an object was made with: the attributes that are called like the arguments of its constructor.

    Made again from these, it must be the same: what else decides it would be in no file.
    """
    kind, found = type(method), {}
    for parameter in parameters(kind):
        value = getattr(method, parameter.name, inspect.Parameter.empty)
        if isinstance(value, PLAIN):
            whole_as_real = isinstance(parameter.default, float) and type(value) is int
            found[parameter.name] = float(value) if whole_as_real else value
        elif value is inspect.Parameter.empty or parameter.default is inspect.Parameter.empty:
            raise SnclError(
                f"what this {kind.__name__} was made with cannot be told: it keeps no number or text "
                f"self.{parameter.name}; give the class, or an Entry with its settings"
            )
    if (name := difference(method, kind(**found))) is not None:
        made = ", ".join(f"{key}={value!r}" for key, value in found.items())
        raise SnclError(
            f"this {kind.__name__} is not what {kind.__name__}({made}) makes: its {name} is another; give an object "
            "that has learned nothing, and whose constructor takes what decides it as numbers and texts"
        )
    return found


def parameters(kind: type[Method]) -> list[inspect.Parameter]:
    """The arguments of the constructor that have names."""
    return [each for each in inspect.signature(kind).parameters.values() if each.kind in NAMED]


def difference(one: Method, other: Method) -> str | None:
    """The name of an attribute or tensor in which two methods differ; None where they are the same."""
    ours, theirs = one.state_dict(), other.state_dict()
    for name in [*ours, *theirs]:
        if name not in ours or name not in theirs or not torch.equal(ours[name].cpu(), theirs[name].cpu()):
            return name
    first, second = ({**plain_attributes(each), **dict(each.named_children())} for each in (one, other))
    return next((name for name in {**first, **second} if not is_same(first.get(name), second.get(name))), None)


def plain_attributes(method: Method) -> dict[str, Any]:
    """Those that the method set itself, without its tensors and modules."""
    return {key: value for key, value in vars(method).items() if key[0] != "_"}


def is_same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values are alike, as far as can be told: plain ones by value, objects by what they hold."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if type(one) is not type(other) or depth > DEEPEST:
        return depth > DEEPEST
    if isinstance(one, torch.Tensor):
        return torch.equal(one.cpu(), other.cpu())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(is_same(*each, depth + 1) for each in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key], depth + 1) for key in one)
    if isinstance(one, PLAIN) or one is None or inspect.isroutine(one) or isinstance(one, type):
        return bool(one == other)
    return is_same(getattr(one, "__dict__", {}), getattr(other, "__dict__", {}), depth + 1)


def code_digest(made_by: Callable[..., Any]) -> str:
    """A short fingerprint of a class or function as it is written, so that a run says which code made it.

    What it calls elsewhere is not looked at, nor what is a part of sncl.
    """
    kinds = inspect.getmro(made_by) if isinstance(made_by, type) else ()
    own = [kind for kind in kinds if not kind.__module__.startswith(("sncl.", "torch.", "builtins", "abc"))]
    texts = [source(made_by)] if not kinds else []
    for kind in own:
        for name, raw in sorted(vars(kind).items()):
            value = getattr(raw, "__func__", raw)  # of a class method
            if inspect.isfunction(value):
                texts.append(source(value))
            elif isinstance(value, PLAIN) and not name.startswith("__"):
                texts.append(f"{name} = {value!r}")
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def source(function: Callable[..., Any]) -> str:
    """The text of a function; its instructions where there is no text, as in a plain Python prompt."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return "" if code is None else f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
