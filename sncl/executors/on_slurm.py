"""Runs as one job array of Slurm, by submitit, whose own local executor stands in for Slurm where there is none.

A job that is preempted, or reaches its time limit, is queued again and goes on from its last checkpoint. What the runs
tell comes through files beside the logs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sncl.errors import Killed, SnclError
from sncl.executors.fleet import Calls, Resources, Say, Watch
from sncl.executors.orders import Order, Outcome, carry_out, orders, results

LOGS = "slurm-logs"
WAIT_SECONDS = 0.5  # between two looks at the files
DAY = 24 * 60  # minutes: the time limit, unless told otherwise
REQUEUES = 1000
KIND = "kind of tuple"
KINDS = ("slurm", "local")
KNOWN = {"partition": "slurm_partition", "account": "slurm_account", "qos": "slurm_qos", "mem": "slurm_mem"}


@dataclass(frozen=True)
class OnSlurm:
    """``options`` are those of sbatch, and ``cluster``, which names submitit's executor."""

    options: dict[str, str] = field(default_factory=dict)

    def run(self, calls: Calls, watch: Watch, say: Say) -> list[Any]:
        logs = calls.root.absolute() / LOGS
        executor = self.executor(logs, calls.share, len(calls.jobs))
        with orders(calls, secret=False) as made:
            heard = [
                Heard(logs / f"{order.sign.name[1:]}-{number}.reports", calls.kinds)
                for number, order in enumerate(made)
            ]
            with executor.batch():
                jobs = [executor.submit(SlurmRun(), order, each.path) for order, each in zip(made, heard, strict=True)]
            say(f"runs are made by Slurm, {len(jobs)} jobs from {jobs[0].job_id} on; logs: {logs}")
            try:
                outcomes = follow_jobs(jobs, heard, watch)
            except KeyboardInterrupt:
                for job in jobs:
                    job.cancel(check=False)
                raise
            finally:
                for each in heard:
                    each.path.unlink(missing_ok=True)
        return results(outcomes)

    def executor(self, logs: Path, share: Resources, jobs: int) -> Any:
        """What submits the jobs, with the options of whoever asks."""
        import submitit

        given = dict(self.options)
        kind = given.pop("cluster", "slurm")
        if kind not in KINDS:
            raise SnclError(f"the cluster of submitit is {' or '.join(KINDS)}, not {kind!r}")
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            executor = submitit.AutoExecutor(folder=logs, cluster=kind, slurm_max_num_timeout=REQUEUES)
        except RuntimeError as error:
            raise SnclError(f"Slurm is not there: {error}; call where sbatch is found") from error
        chosen: dict[str, Any] = {
            "name": "sncl",
            "cpus_per_task": share.cpus,
            "timeout_min": minutes(given.pop("time", str(DAY))),
            "slurm_array_parallelism": whole("parallel", given.pop("parallel", str(jobs))),
        }
        gpus = whole("gpus", given.pop("gpus", "1" if share.gpus else "0"))
        if gpus:
            chosen["gpus_per_node"] = gpus
        chosen |= {KNOWN[key]: given.pop(key) for key in list(given) if key in KNOWN}
        executor.update_parameters(**chosen, slurm_additional_parameters=given)
        return executor


def whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise SnclError(f"{name} of Slurm is a whole number, not {text!r}")
    return int(text)


def minutes(text: str) -> int:
    """A time limit as Slurm is given it: minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or DAYS-HOURS:..."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise SnclError(f"time of Slurm is minutes, or HOURS:MINUTES:SECONDS, not {text!r}")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # hours come first
        hours, mins, seconds = (*parts, 0, 0)[:3]
    else:
        hours, mins, seconds = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    return max(1, int(days or 0) * DAY + hours * 60 + mins + (seconds > 0))


class SlurmRun:
    """One run, as a job."""

    def __call__(self, order: Order, path: Path) -> Outcome:
        with path.open("a", encoding="utf-8") as file:

            def report(value: Any) -> None:
                file.write(json.dumps(plain(value)) + "\n")
                file.flush()

            return carry_out(order, report)

    def checkpoint(self, order: Order, path: Path) -> Any:
        """What is queued when the job is preempted: the same again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, order, path)


class Heard:
    """The reports of one job, as they are written to a file."""

    def __init__(self, path: Path, kinds: tuple[type, ...] = ()) -> None:
        self.path = path
        self.kinds = {kind.__name__: kind for kind in kinds}
        self.read = 0

    def news(self) -> list[Any]:
        """What is new, as far as it is written to the end of a line."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.read)
            whole = file.read().rpartition(b"\n")[0]
        self.read += len(whole) + bool(whole)
        return [rich(json.loads(line), self.kinds) for line in whole.splitlines()]


def plain(value: Any) -> Any:
    """A report as JSON has it: named tuples by the name of their kind, and tuples as lists."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {KIND: type(value).__name__, "fields": [plain(each) for each in value]}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def rich(value: Any, kinds: Mapping[str, type]) -> Any:
    """A report as it was; of the kinds that are known here."""
    if isinstance(value, list):
        return [rich(each, kinds) for each in value]
    if isinstance(value, dict) and KIND in value:
        return kinds[value[KIND]](*(rich(each, kinds) for each in value["fields"]))
    return {key: rich(each, kinds) for key, each in value.items()} if isinstance(value, dict) else value


def follow_jobs(jobs: list[Any], heard: list[Heard], watch: Watch) -> list[Outcome]:
    """Wait for all jobs; the outcome of each."""
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < len(jobs):
        for number, job in enumerate(jobs):
            if number not in outcomes and job.done():
                outcomes[number] = outcome_of(job)
            for value in heard[number].news():
                watch(number, value)
        time.sleep(WAIT_SECONDS)
    return [outcomes[number] for number in range(len(jobs))]


def outcome_of(job: Any) -> Outcome:
    import submitit

    try:
        outcome: Outcome = job.result()
        return outcome
    except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
        log = job.paths.stderr
        return False, Killed(f"job {job.job_id} ended without a result; {log} says why, and the same command goes on")
