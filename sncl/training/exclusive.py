"""One call at a time: objects whose methods may be called from several threads, and which may be copied meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

LOCK = "_lock"


class Exclusive:
    """An object with a re-entrant lock of its own, made when it is first needed."""

    def lock(self) -> AbstractContextManager[Any]:
        """Its lock."""
        own: AbstractContextManager[Any] | None = self.__dict__.get(LOCK)
        return own or self.__dict__.setdefault(LOCK, RLock())  # one step: threads never make two

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Let calls from other threads wait until the block is left; calls from this one go on."""
        with self.lock():
            yield

    def _unlocked(self) -> dict[str, Any]:
        """All attributes but the lock, which a copy does not share."""
        return {name: value for name, value in self.__dict__.items() if name != LOCK}


class ExclusivelyCopied(Exclusive):
    """The same with copies and pickles, each of which is the object between two calls."""

    def __getstate__(self) -> dict[str, Any]:
        with self.exclusively():
            return deepcopy(self._unlocked())  # it is pickled when the lock is free again

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        with self.exclusively():
            twin.__dict__.update(deepcopy(self._unlocked(), memo))
        return twin


Owner = TypeVar("Owner", bound=Exclusive)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def exclusive(method: Callable[Concatenate[Owner, Given], Returned]) -> Callable[Concatenate[Owner, Given], Returned]:
    """A method that runs in one thread at a time."""

    @wraps(method)
    def alone(self: Owner, /, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
        with self.lock():
            return method(self, *args, **kwargs)

    return alone
