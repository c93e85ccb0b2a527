"""Many trials of settings, by any number of processes: a study that Optuna keeps in a journal file or a database.

*Who works on what.* Optuna's journal says that a trial is running, not whether whoever runs it still lives. So a worker
holds a file lock of its own for each trial it runs (``JOURNAL.running/trial-N.lock``), which the system gives back when
the process ends, however it ends. A worker takes a trial and its lock in one piece, under the lock of the whole study
(``JOURNAL.lock``); under the same lock a running trial whose lock is free has therefore been left by its process. It is
marked as failed, and its parameters are queued anew. Machines that share the folder share the study if its file system
knows locks. In a database the server keeps these locks (``database.py``).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import optuna
from filelock import Timeout
from optuna.trial import FrozenTrial, TrialState

from sncl.errors import Diverged, SnclError
from sncl.methods.table import Settings
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.summary import mean_std
from sncl.training.checkpoint import sealed, unsealed
from sncl.training.events import Moment, Watch, sparingly
from sncl.training.folder import DATA
from sncl.tuning.address import Database
from sncl.tuning.files import write_files
from sncl.tuning.journal import JournalPlace
from sncl.tuning.sampling import RoundingSampler, distribution
from sncl.tuning.search import Search
from sncl.tuning.trial import Trial, ranking

if TYPE_CHECKING:
    from sncl.tuning.database import DatabasePlace

STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
ATTEMPTS = 5  # at parameters whose process was killed: they may be what kills it
PATIENCE = 0.3  # seconds until a worker looks again whether there is a trial to take

StudyReport = Callable[["Standing"], None]
TrialProgress = Callable[[str, Moment], None]  # a seed of a trial, and how far it is


@dataclass(frozen=True)
class StudyJob:
    """A study, as every process that joins it is told: what is searched, where it is kept, how many trials it has."""

    search: Search
    storage: Path | Database
    out: Path
    trials: int
    data: Path | None = None


class Standing(NamedTuple):
    """How far a study is, and how far whoever says so is with a trial."""

    finished: int
    best: float | None
    trial: str = ""  # which one, and which seed of it
    moment: Moment | None = None


class Study:
    """One worker's hold on a study; every thread and every process has its own."""

    def __init__(self, job: StudyJob) -> None:
        self.job, self.search = job, job.search
        self.distributions = {key: distribution(where) for key, where in job.search.space.items()}
        self.place = place_of(job)
        self.running, self.lock = self.place.running, self.place.lock
        with self.lock:
            self.storage, self.study = self.place.open()
            if "identity" not in self.study.user_attrs:
                if not self.study.trials:
                    self.study.enqueue_trial(job.search.default(), {"default": True})
                self.study.set_user_attr("identity", job.search.identity())
            self.compare(self.study.user_attrs["identity"])

    def compare(self, there: dict[str, Any]) -> None:
        """Refuse to add trials that could not be compared with those that are there."""
        here = self.search.identity()
        for key in here | there:
            if here.get(key) != there.get(key):
                raise SnclError(
                    f"{self.job.storage} holds another study: {key} is {there.get(key, 'not there')}, and here it is "
                    f"{here.get(key, 'not there')}; choose another `storage`, or ask for what it was made with"
                )

    def trials(self) -> list[Trial]:
        """Every trial there is, as plain values."""
        found = []
        for each in self.study.get_trials(deepcopy=False):
            outcome = self.outcome(each)
            found.append(
                Trial(
                    number=each.number,
                    state=STATES[each.state],
                    params=params_of(each),
                    scores=outcome.get("scores", []),
                    seconds=outcome.get("seconds"),
                    reason=outcome.get("reason"),
                    default=each.user_attrs.get("default", False),
                )
            )
        return found

    def outcome(self, trial: FrozenTrial) -> dict[str, Any]:
        """What came of a trial."""
        try:
            return dict(unsealed(trial.user_attrs.get("outcome", {})))
        except ValueError as error:
            where = f"what {self.job.storage} says of trial {trial.number}"
            raise SnclError(f"{where} is damaged: {error}; choose another `storage` to start over") from error

    def standing(self) -> Standing:
        trials = self.trials()
        finished = sum(trial.state in ("complete", "pruned") for trial in trials)
        return Standing(finished, next((trial.score for trial in ranking(trials)), None))

    def close(self) -> list[Trial]:
        """All trials, written down once more; the folder of those that run goes if there are none."""
        with self.lock:
            self.write()
            with suppress(OSError):
                self.running.rmdir()
            return self.trials()

    def write(self) -> None:
        write_files(self.search, self.trials(), self.job.trials, self.job.out)

    def work(self, report: StudyReport) -> None:
        """Take one trial after the other until enough are finished, whoever finishes them."""
        while (standing := self.standing()).finished < self.job.trials:
            report(standing)
            trial = self.take()
            if trial is None:
                time.sleep(PATIENCE)  # others work on the last ones, and may be killed
            else:
                self.perform(trial, partial(report_trial, report, standing))
        report(standing)

    def take(self) -> optuna.Trial | None:
        """The next trial, with its lock; None while those that are being worked on would be enough."""
        with self.lock:
            self.running.mkdir(exist_ok=True)
            self.revive()
            everything = self.study.get_trials(deepcopy=False)
            if sum(trial.state not in (TrialState.WAITING, TrialState.FAIL) for trial in everything) >= self.job.trials:
                return None
            self.study.sampler = RoundingSampler(seed=len(everything))  # no two trials are drawn alike
            trial = self.study.ask(self.distributions)
            self.own = self.place.lock_of(trial.number)
            self.own.acquire()
            return trial

    def revive(self) -> None:
        """Queue anew what a process that is no more was working on. Needs the lock of the study."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            with suppress(Timeout), self.place.lock_of(trial.number):  # someone who works on it holds its lock
                self.give_up(trial.number, "its process was killed", attempt=trial.user_attrs.get("attempt", 1) + 1)

    def give_up(self, number: int, reason: str, attempt: int) -> None:
        """Queue a trial's parameters and mark it as failed, in the order that loses nothing. Needs the study's lock."""
        trial = self.study.get_trials(deepcopy=False)[number]
        if trial.state != TrialState.RUNNING:
            return  # somebody else has done so
        if attempt <= ATTEMPTS:
            notes = {"attempt": attempt, "default": trial.user_attrs.get("default", False)}
            self.study.enqueue_trial(params_of(trial), notes)
        self.end(number, TrialState.FAIL, {"reason": reason})

    def end(self, number: int, state: TrialState, outcome: dict[str, Any], value: float | None = None) -> None:
        """Store what came of a trial and remove its files. Needs the lock of the study."""
        study = self.storage.get_study_id_from_name(self.study.study_name)
        trial = self.storage.get_trial_id_from_study_id_trial_number(study, number)
        self.storage.set_trial_user_attr(trial, "outcome", sealed(outcome))
        self.study.tell(number, value, state=state)
        shutil.rmtree(self.running / f"trial-{number}", ignore_errors=True)
        self.place.forget(number)
        self.write()

    def perform(self, trial: optuna.Trial, report: TrialProgress) -> None:
        """Run a trial and store what comes of it. One that diverges counts as pruned, so that the sampler avoids it."""
        begun = time.monotonic()
        scores: list[float] = []
        reason, state = None, TrialState.COMPLETE
        try:
            try:
                reason = self.score(trial, scores, report)
            except (Diverged, optuna.TrialPruned) as error:
                reason, state = str(error), TrialState.PRUNED
            outcome = {"scores": scores, "seconds": round(time.monotonic() - begun, 3), "reason": reason}
            with self.lock:
                value = mean_std(scores)[0] if state == TrialState.COMPLETE else None
                self.end(trial.number, state, outcome, value)
        except optuna.exceptions.UpdateFinishedTrialError:
            return  # whoever lost sight of this process has queued it anew
        except BaseException as error:  # Ctrl-C, or what no other parameters would change
            with self.lock:
                reason = " ".join(["broken off:", type(error).__name__, str(error)])
                self.give_up(trial.number, reason, attempt=trial.user_attrs.get("attempt", 1))
            raise
        finally:
            self.own.release()

    def experiment(self, params: Settings, seed: int) -> Experiment:
        """One run of a trial, on the data that the others were scored on."""
        found = self.search.experiment(params, seed)
        return found if found.user_data is not None else replace(found, data=self.study.user_attrs.get(DATA))

    def remember_data(self, fingerprint: str) -> None:
        """Bind the study to the data its first run was made with."""
        with self.lock:
            if DATA not in self.study.user_attrs:
                self.study.set_user_attr(DATA, fingerprint)
            elif self.study.user_attrs[DATA] != fingerprint:
                raise SnclError(f"{self.job.storage} has trials on other data; choose another `storage`")

    def score(self, trial: optuna.Trial, scores: list[float], report: TrialProgress) -> str | None:
        """Append the final validation accuracy of each seed, by the first read-out; what there is to say about it."""
        params = dict(trial.params)
        for earlier in self.trials():
            if earlier.state == "complete" and earlier.params == params:  # a run is decided by its settings and seed
                scores += earlier.scores
                return f"the same as trial {earlier.number}"
        for seed in range(self.search.seeds):
            tell = sparingly(partial(report, f"trial {trial.number}, seed {seed}"))

            def watch(moment: Moment, first: bool = seed == 0, tell: Watch = tell) -> None:
                tell(moment)
                if moment.accuracy and first:
                    trial.report(next(iter(moment.accuracy.values())), moment.task)
                    done = self.search.seeds == 1 and moment.task == moment.tasks - 1
                    if trial.should_prune() and not done and not trial.user_attrs.get("default"):
                        raise optuna.TrialPruned(f"below the median of the other trials after task {moment.task + 1}")

            folder = self.running / f"trial-{trial.number}" / f"seed-{seed}"
            result = perform(self.experiment(params, seed), folder, self.job.data, watch)
            self.remember_data(result.manifest.data)
            scores.append(next(iter(result.accuracy.values())))
        return None


def place_of(job: StudyJob) -> JournalPlace | DatabasePlace:
    """Where a study is kept, with its locks."""
    if isinstance(job.storage, Path):
        return JournalPlace(job.storage)
    from sncl.tuning.database import DatabasePlace

    return DatabasePlace(job.storage, job.out)


def report_trial(report: StudyReport, standing: Standing, trial: str, moment: Moment) -> None:
    report(standing._replace(trial=trial, moment=moment))


def params_of(trial: FrozenTrial) -> Settings:
    """The values of the searched settings: those it was queued with, or those that were drawn."""
    return dict(trial.system_attrs.get("fixed_params", {})) | dict(trial.params)


def take_trials(job: StudyJob, report: StudyReport) -> None:
    """What one worker does, in a process or thread of its own."""
    Study(job).work(report)
