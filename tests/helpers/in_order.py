"""A stand-in for many processes: jobs in this one, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


def one_by_one(
    function: Callable[..., Any],
    jobs: Sequence[Any],
    workers: int,
    watch: Callable[..., None],
    load_program: bool = True,
) -> list[Any]:
    return [function(job, partial(watch, number)) for number, job in enumerate(jobs)]
