"""Many runs at once: on the CPU each in a process of its own, on a GPU each in a CUDA stream of one process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from threading import Event, Lock, Thread
from types import ModuleType
from typing import Any

from sncl.errors import Killed, SnclError
from sncl.training.garbage import load_lightly
from sncl.training.stopping import Stopped, finishing, heed_parent, stop_code, stop_if_asked

Report = Callable[[Any], None]
PROGRAM = Lock()  # held while this process has none: several threads may start others
SHARE: ContextVar[int] = ContextVar("share", default=1)  # how many cores a run may use


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def sharing_cores(runs: int = 1) -> Iterator[None]:
    """In this block a run has its share of the cores, with so many runs at once: what it may use for its tests."""
    token = SHARE.set(cores() // runs)
    try:
        yield
    finally:
        SHARE.reset(token)


def run_all(
    function: Callable[[Any, Report], Any],
    jobs: Sequence[Any],
    workers: int,
    watch: Callable[[int, Any], None] | None = None,
    load_program: bool = True,
) -> list[Any]:
    """``function(job, report)`` for every job, ``workers`` at a time; the results in the order of the jobs.

    What a job reports arrives at ``watch(number of the job, report)``. A job that fails, or whose process is killed,
    does not stop the others; the first failure is raised when all are done. Ctrl-C and SIGTERM end the
    workers behind their next batch, with a checkpoint. Workers load the program of this process as a module, with what
    it defines and changes, unless ``load_program`` is False: it may have no guard against being run again.

    Every worker has a line of its own to this process, which notices on it when the other end dies. A pool and a
    queue, which the workers share, can wait for ever for one that was killed.
    """
    results: list[Any] = [None] * len(jobs)
    failed: dict[int, Exception] = {}
    waiting = list(range(len(jobs)))
    processes: dict[Connection, BaseProcess] = {}
    busy: dict[Connection, int] = {}

    def give(link: Connection) -> None:
        """Send the next job; where the worker has died already, its line is about to say so."""
        busy[link] = waiting.pop(0)
        with suppress(OSError):
            link.send(jobs[busy[link]])

    at_once = min(workers, len(jobs))
    hire = partial(_hire, function, at_once, processes, load_program)
    try:
        for _ in range(at_once):
            give(hire())
        while busy:
            for link in wait(list(busy)):
                assert isinstance(link, Connection)
                number = busy[link]
                kind, value = _received(link, processes[link])
                if kind == "report":
                    if watch:
                        watch(number, value)
                    continue
                del busy[link]
                if kind == "result":
                    results[number] = value
                else:
                    failed[number] = value
                if waiting:
                    give(link if kind != "death" else hire())
    finally:
        _dismiss(processes)
    if failed:
        raise failure(failed[min(failed)], len(failed), len(jobs))
    return results


def run_here(
    function: Callable[[Any, Report], Any], jobs: Sequence[Any], watch: Callable[[int, Any], None] | None = None
) -> list[Any]:
    """:func:`run_all` in this process, one job after the other, for what no other process could be told or need be."""
    results: list[Any] = [None] * len(jobs)
    failed: dict[int, Exception] = {}
    with sharing_cores():
        for number, job in enumerate(jobs):
            try:
                results[number] = function(job, partial(watch or _ignore, number))
            except SnclError as error:
                failed[number] = error
    if failed:
        raise failure(failed[min(failed)], len(failed), len(jobs))
    return results


def run_in_threads(
    function: Callable[[Any, Report], Any],
    jobs: Sequence[Any],
    at_once: int,
    watch: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """:func:`run_all` for runs that share a GPU: threads of this process, each launching into its own CUDA stream.

    One small run leaves most of a GPU idle, and separate processes take turns on it where streams overlap. Threads
    suffice, since a step costs the host little more than a launch. Ctrl-C and SIGTERM end them behind their next batch.
    """
    reporting = Lock()
    stopping = Event()

    def perform(number: int) -> Any:
        import torch

        stop_if_asked()

        def report(value: Any) -> None:
            if stopping.is_set():
                raise KeyboardInterrupt
            if watch:
                with reporting:
                    watch(number, value)

        stream = torch.cuda.Stream() if torch.cuda.is_available() else None
        with torch.cuda.stream(stream):
            return function(jobs[number], report)

    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(perform, number) for number in range(len(jobs))]
        try:
            failed = {number: error for number, each in enumerate(waiting) if (error := each.exception()) is not None}
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise
    if failed:
        first = failed[min(failed)]
        raise failure(first, len(failed), len(jobs)) if isinstance(first, Exception) else first
    return [each.result() for each in waiting]


def _hire(
    function: Callable[..., Any], at_once: int, processes: dict[Connection, BaseProcess], load_program: bool
) -> Connection:
    """Start one of so many workers; the line to it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    told = bytes(ForkingPickler.dumps(function))  # what it needs is loaded behind what watches over loading
    process = context.Process(target=_serve, args=(there, told, at_once), daemon=True)
    # A terminal sends Ctrl-C to all. This process answers it; a worker is born deaf to it, and hears SIGTERM when it
    # can answer. The tracker that multiprocessing starts with its first process would unblock the signal again, so it
    # comes first.
    resource_tracker.ensure_running()
    with finishing():  # half a worker could not be told to stop
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with nullcontext() if load_program else _without_program():
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()
        processes[here] = process
    stop_if_asked()
    return here


def _ignore(number: int, report: Any) -> None:
    """Nobody watches."""


@contextmanager
def _without_program() -> Iterator[None]:
    """Let a process that is started here not load the program of this one."""
    with PROGRAM:
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = program


def _received(link: Connection, process: BaseProcess) -> tuple[str, Any]:
    """What a worker says next: a report, a result or an error; its death, if it can say nothing any more."""
    try:
        kind, value = link.recv()
        return kind, value
    except (EOFError, OSError):
        return "death", _death(process)


def _dismiss(processes: dict[Connection, BaseProcess]) -> None:
    """End all workers, each behind its batch. What they still say is read: a line that is full would hold them up."""
    for process in processes.values():
        process.terminate()
    for link, process in processes.items():
        with suppress(EOFError, OSError):
            while process.sentinel not in wait([link, process.sentinel]):
                link.recv_bytes()
        process.join()
        link.close()


def _serve(link: Connection, told: bytes, at_once: int) -> None:
    """What a worker does: one job after the other, until it is told to stop."""
    load_lightly()
    function: Callable[..., Any] = ForkingPickler.loads(told)
    try:
        heed_parent()
        Thread(target=_follow, daemon=True).start()
        with sharing_cores(at_once):
            while True:
                job = link.recv()
                try:
                    link.send(("result", function(job, lambda report: link.send(("report", report)))))
                except SnclError as error:
                    link.send(("error", error))
                except Exception:
                    link.send(("error", RuntimeError(f"a run broke off:\n{traceback.format_exc()}")))
    except Stopped:
        sys.exit(stop_code())


def _follow() -> None:
    """End when the main process does, however that ends: a worker that outlives it keeps its run folder locked."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _death(process: BaseProcess) -> Killed:
    process.join()
    return Killed(
        f"the process of a run was killed (exit code {process.exitcode}), perhaps for want of memory; "
        "the same command goes on from its last checkpoint"
    )


def failure(first: Exception, failed: int, jobs: int) -> Exception:
    """The failure to raise: a programming error stays what it is, the others say how many failed."""
    if not isinstance(first, SnclError) or jobs == 1:
        return first
    stored = "; the others are stored" if failed < jobs else ""
    return SnclError(f"{first} ({failed} of {jobs} runs failed{stored})")
