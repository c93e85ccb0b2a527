"""One experiment, where it is kept, and performing it while somebody watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sncl.runs.experiment import Experiment
from sncl.runs.result import Result
from sncl.training.events import Moment, sparingly
from sncl.training.folder import CHECKPOINT_SECONDS

JobReport = Callable[[Moment | None], None]  # None: the job has ended


@dataclass(frozen=True)
class Job:
    """One experiment and where it is kept."""

    experiment: Experiment
    folder: Path
    data: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    keep_tasks: bool = False
    tensorboard: bool = False
    group: str | None = None  # "auto": shared by the processes that were started for it


def work(job: Job, report: JobReport) -> Result:
    """Perform one job and report on it now and then, not every step, and when it ends, well or not."""
    from sncl.runs.perform import perform

    watch = sparingly(report)

    def reading(done: int, total: int) -> None:
        watch(Moment(done, total, task=0, tasks=1, reading=True))

    options = (job.checkpoint_seconds, job.keep_tasks, job.tensorboard, job.group)
    try:
        return perform(job.experiment, job.folder, job.data, watch, reading, *options)
    finally:
        report(None)
