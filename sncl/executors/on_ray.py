"""Runs as tasks of a Ray cluster: one that is there already, or one of this machine's cores for as long as they take.

Ray lives in a process of its own beside this one. It installs handlers, starts threads and ends its process when the
head of the cluster is lost; whoever asked for runs is to see one line and nothing of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sncl.errors import Killed, SnclError
from sncl.executors.fleet import Calls, Resources, Say, Watch
from sncl.executors.orders import Order, Outcome, carry_out, orders, results
from sncl.training.parallel import Report, run_all
from sncl.training.stopping import heed_parent

RETRIES = 100  # of a run whose process or machine was lost: each goes on from its last checkpoint
WAIT_SECONDS = 0.2  # between two looks at what is finished and told
ANSWER_SECONDS = 5.0  # that the reports may take to arrive
CANCEL_SECONDS = 20.0  # for a run to store a checkpoint and end

NOTE = -1  # in place of the number of a job: something to say


@dataclass(frozen=True)
class OnRay:
    """``address`` is ray://HOST:PORT; without one, the cluster that is running here or a local one."""

    address: str | None = None

    def run(self, calls: Calls, watch: Watch, say: Say) -> list[Any]:
        def hear(_: int, told: tuple[int, Any]) -> None:
            number, value = told
            if number == NOTE:
                say(value)
            else:
                watch(number, value)

        with orders(calls) as made:
            drive = Drive(self.address, made, calls.share)
            try:
                outcomes = run_all(follow_tasks, [drive], 1, hear, load_program=False)[0]
            except Killed as error:
                raise lost(self.address) from error
        return results(outcomes)


@dataclass(frozen=True)
class Drive:
    """What the process that speaks to Ray is told."""

    address: str | None
    orders: list[Order]
    share: Resources


def lost(address: str | None) -> SnclError:
    return SnclError(
        f"the Ray cluster{f' at {address}' if address else ''} does not answer any more; what the runs stored is kept, "
        "and the same command goes on"
    )


def follow_tasks(drive: Drive, report: Report) -> list[Outcome]:
    """Start a task for every order and follow them all; the outcomes. Runs in a process of its own."""
    from sncl.executors.cluster import joined

    with joined(drive.address, drive.share) as head:
        heed_parent()  # again: Ray has answers of its own
        report((NOTE, head.words()))
        head.check_room(drive.share)
        tasks = Tasks(drive.orders, head.part_of(drive.share, len(drive.orders)), report)
        try:
            while tasks.running:
                tasks.look()
                if not head.answers():
                    raise lost(drive.address)
            tasks.hear()
        except KeyboardInterrupt:
            tasks.cancel()
            raise
        return tasks.outcomes


class Tasks:
    """The tasks of all orders, on their way."""

    def __init__(self, given: list[Order], share: Resources, report: Report) -> None:
        import ray

        self.ray, self.report = ray, report
        self.outcomes: list[Outcome] = [(False, None)] * len(given)
        self.reports: Any = ray.remote(Reports).options(num_cpus=0, max_restarts=-1).remote()
        task = ray.remote(carry_out_task).options(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=RETRIES)
        self.running: dict[Any, int] = {}
        for number, order in enumerate(given):
            call = StoredCall([ray.put(order.call())])
            self.running[task.remote(number, replace(order, call=call), self.reports)] = number

    def look(self) -> None:
        """Take in what is finished and what was told, after a short wait."""
        done, _ = self.ray.wait(list(self.running), timeout=WAIT_SECONDS)
        for each in done:
            self.outcomes[self.running.pop(each)] = self.outcome(each)
        self.hear()

    def outcome(self, task: Any) -> Outcome:
        try:
            found: Outcome = self.ray.get(task)
            return found
        except self.ray.exceptions.RayError as error:
            why = " ".join(str(error).split())
            return False, Killed(f"a run was lost on the cluster: {why[:300]}; the same command goes on")

    def hear(self) -> None:
        """Hand on what the runs told; nothing while whoever collects it is being started again."""
        try:
            for told in self.ray.get(self.reports.take.remote(), timeout=ANSWER_SECONDS):
                self.report(told)
        except self.ray.exceptions.RayError:
            return

    def cancel(self) -> None:
        """End all tasks, each behind its batch if there is time for it."""
        waiting = list(self.running)
        for force, seconds in ((False, CANCEL_SECONDS), (True, 1.0)):
            for task in waiting:
                self.ray.cancel(task, force=force)
            if waiting:
                _, waiting = self.ray.wait(waiting, num_returns=len(waiting), timeout=seconds)


@dataclass(frozen=True)
class StoredCall:
    """A call that lies with Ray until it is asked for: in a list, or Ray would read it before the task begins."""

    stored: list[Any]

    def __call__(self) -> tuple[Any, Any]:
        import ray

        found: tuple[Any, Any] = ray.get(self.stored[0])
        return found


class Reports:
    """What the tasks told since it was last asked for; an actor."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Any]] = []

    def tell(self, number: int, value: Any) -> None:
        self.told.append((number, value))

    def take(self) -> list[tuple[int, Any]]:
        told, self.told = self.told, []
        return told


def carry_out_task(number: int, order: Order, reports: Any) -> Outcome:
    """One run, as a task on a machine of the cluster."""
    import ray

    last: list[Any] = []

    def report(number: int, value: Any) -> None:
        last[:] = [reports.tell.remote(number, value)]

    outcome = carry_out(order, partial(report, number))
    try:
        ray.get(last, timeout=ANSWER_SECONDS)  # or it would be told behind the end of the run
    except ray.exceptions.RayError:
        return outcome
    return outcome
