"""Many runs at once: each in a process of its own, every core in use."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import torch

from sncl.errors import SnclError

Report = Callable[[Any], None]
_inbox: list[Any] = []  # in a worker: the queue its reports go to


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _enter(queue: Any, threads: int) -> None:
    _inbox[:] = [queue]
    torch.set_num_threads(threads)


def _work(function: Callable[..., Any], number: int, job: Any) -> Any:
    return function(job, lambda moment: _inbox[0].put((number, moment)))


def run_all(
    function: Callable[[Any, Report], Any],
    jobs: Sequence[Any],
    workers: int,
    threads: int = 1,
    watch: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """``function(job, report)`` for every job, ``workers`` at a time; the results in the order of the jobs.

    What a job reports arrives at ``watch(number of the job, report)``. A job that fails does not stop the others; the
    first failure is raised when all are done.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Manager().Queue()
    with ProcessPoolExecutor(workers, context, _enter, (queue, threads)) as pool:
        futures: list[Future[Any]] = [pool.submit(_work, function, number, job) for number, job in enumerate(jobs)]
        for future in futures:
            future.add_done_callback(lambda _: queue.put(None))
        finished = 0
        while finished < len(futures):
            report = queue.get()
            if report is None:
                finished += 1
            elif watch:
                watch(*report)
    failed = [error for error in (future.exception() for future in futures) if error is not None]
    if failed:
        others = f" ({len(failed)} of {len(futures)} runs failed; the others are stored)" if len(futures) > 1 else ""
        raise SnclError(f"{failed[0]}{others}") from failed[0]
    return [future.result() for future in futures]
