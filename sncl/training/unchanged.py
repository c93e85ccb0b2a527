"""Whether all that code reads beside its arguments is still there, and the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DIFFERENTIATED, _HOOKED = attrgetter("requires_grad"), attrgetter("_backward_hooks")
KNOWN = ("torch.nn.modules.", "sncl.")  # whose code computes the same every time, as its attributes say


class Unchanged:
    """Attributes of objects, as :meth:`holds` compares them with what they were, and the places of tensors.

    A tensor may change in place. An attribute may not be another object, also not in a list or dictionary.
    """

    def __init__(self, parts: Sequence[object], tensors: Sequence[Tensor]) -> None:
        found = list(_containers(parts))
        self._empty = [each for each in found if not each]
        self._filled = [each.values() if isinstance(each, dict) else each for each in found if each]  # as they are now
        self._tensors = list(tensors)
        self._held, self._facts = list(chain.from_iterable(self._filled)), self._facts_now()

    def _facts_now(self) -> list[Any]:
        """What is compared by value: places and kinds of tensors, and modes."""
        tensors = self._tensors
        return [*map(Tensor.data_ptr, tensors), *map(_DIFFERENTIATED, tensors), *map(_HOOKED, tensors), *modes()]

    def holds(self) -> bool:
        """Whether nothing was replaced since this was made."""
        if any(self._empty):
            return False
        held = list(chain.from_iterable(self._filled))
        return len(held) == len(self._held) and all(map(is_, held, self._held)) and self._facts_now() == self._facts


def modes() -> tuple[Any, ...]:
    """What of torch's global state decides which operations are run."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        bool(_has_any_global_hook()),
    )


def are_usual() -> bool:
    """Whether nothing watches or redirects operations but autograd."""
    _, inference, autocast, anomaly, _, _, dispatching, functions, hooks = modes()
    return not (inference or autocast or anomaly or dispatching or functions or hooks)


def modules_in(parts: Iterable[object]) -> Iterator[object]:
    """The objects themselves, the modules within modules, and what hooks call."""
    for part in parts:
        for each in part.modules() if isinstance(part, nn.Module) else (part,):
            yield each
            if isinstance(each, nn.Module):
                yield from chain.from_iterable(vars(each)[name].values() for name in HOOKS)


def are_known(parts: Iterable[object]) -> bool:
    """Whether all objects are of PyTorch's own modules or ours, and call nothing else.

    A network of somebody else may count its passes, flip coins or compute with NumPy, which no recording shows.
    """
    return all(_is_known(each) for each in modules_in(parts))


def _is_known(part: object) -> bool:
    if not type(part).__module__.startswith(KNOWN):
        return False
    if any(callable(each) and not isinstance(each, (nn.Module, type)) for each in vars(part).values()):
        return False  # a function, such as an activation or a `forward` of one's own
    return not isinstance(part, nn.Module) or not any(each._backward_hooks for each in part.parameters(recurse=False))


def _containers(parts: Iterable[object]) -> Iterator[Any]:
    """The attributes of objects, and the lists and dictionaries among them."""
    seen: set[int] = set()
    left: list[Any] = [vars(each) for each in modules_in(parts)]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left.extend(inner for inner in (each.values() if isinstance(each, dict) else each) if _is_container(inner))


def _is_container(value: Any) -> bool:
    return isinstance(value, (dict, list)) or (isinstance(value, tuple) and any(map(_is_container, value)))
