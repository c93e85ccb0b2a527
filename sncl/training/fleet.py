"""Many runs at once: each in a process of its own, every core in use."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.managers import SyncManager
from threading import Thread
from typing import Any

from sncl.errors import SnclError

Report = Callable[[Any], None]
_inbox: list[Any] = []  # in a worker: the queue its reports go to


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _follow() -> None:
    """End when the main process does, however that ends: a worker that outlives it keeps its run folder locked."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _enter(queue: Any, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the main process answers it
    _follow()
    _inbox[:] = [queue]
    import torch  # here, so that the process that only passes reports on does not load it

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
    first failure is raised when all are done. Ctrl-C ends the workers at once.
    """
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    manager.start(_follow)
    with manager:
        queue = manager.Queue()
        others = set(multiprocessing.active_children())
        with ProcessPoolExecutor(workers, context, _enter, (queue, threads)) as pool:
            try:
                futures = [pool.submit(_work, function, number, job) for number, job in enumerate(jobs)]
                for future in futures:
                    future.add_done_callback(lambda _: queue.put(None))
                finished = 0
                while finished < len(futures):
                    report = queue.get()
                    if report is None:
                        finished += 1
                    elif watch:
                        watch(*report)
            except BaseException:
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise
    return _results(futures)


def _results(futures: list[Future[Any]]) -> list[Any]:
    """What the jobs returned, or the first failure; a programming error stays what it is."""
    failed = [error for error in (future.exception() for future in futures) if error is not None]
    if not failed:
        return [future.result() for future in futures]
    first, stored = failed[0], "; the others are stored" if len(failed) < len(futures) else ""
    count = f" ({len(failed)} of {len(futures)} runs failed{stored})" if len(futures) > 1 else ""
    if isinstance(first, BrokenProcessPool):
        what = "a worker process was killed from outside, perhaps for want of memory; start again to go on"
        raise SnclError(what + count) from first
    if isinstance(first, SnclError):
        raise SnclError(f"{first}{count}") from first
    raise first
