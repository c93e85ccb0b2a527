"""The trials of a search, several at once, behind a live view of them."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sncl.cli.words import as_options
from sncl.errors import SnclError, lacking
from sncl.executors.fleet import Calls, Fleet
from sncl.live.following import Followed
from sncl.live.jobs import KINDS, RUNS_ON_A_GPU, resources_of
from sncl.live.view import LiveView, Overall, live
from sncl.methods.own import carrying
from sncl.runs.build import check_memory, make_stream
from sncl.training.engine import exact_kernels
from sncl.training.parallel import cores, run_all, run_in_threads
from sncl.tuning.address import Database
from sncl.tuning.search import Search
from sncl.tuning.trial import Trial

if TYPE_CHECKING:
    from sncl.tuning.study import Standing

FLEET_WORKERS = 16  # on other machines, unless told otherwise: those that find no room wait


class Watched:
    """A view of the trials at work: what each of them tells, and how far all are together."""

    def __init__(self, search: Search, trials: int, finished: int, at_once: int) -> None:
        heading = f"{search.method} on {search.stream}, trials on held-out data"
        self.view = LiveView(heading, [Followed("") for _ in range(at_once)])
        self.trials = trials
        self.best: float | None = None
        part = finished / trials
        self.view.overall = self.overall = Overall(finished, trials, part, part)

    def tell(self, number: int, standing: Standing) -> None:
        """Take in what one of them says; it may have heard less than another."""
        finished = min(max(self.overall.ended, standing.finished), self.trials)
        self.best = max((value for value in (self.best, standing.best) if value is not None), default=None)
        note = "" if self.best is None else f"best so far {self.best:.2f} %"
        self.overall = self.overall._replace(ended=finished, part=finished / self.trials, note=note)
        self.view.overall = self.overall
        if self.view.runs[number].title != standing.trial:
            self.view.runs[number] = Followed(standing.trial)
        if standing.moment is not None:
            self.view.tell(number, standing.moment)


def tune(
    search: Search,
    trials: int,
    storage: Path | Database,
    out: Path,
    console: Console,
    data: Path | None = None,
    workers: int | None = None,
    fleet: Fleet | None = None,
) -> list[Trial]:
    """Search until ``trials`` are finished, beside whoever else works on the same study, behind a live view."""
    if find_spec("optuna") is None:
        raise lacking("tuning", "optuna")
    if isinstance(storage, Database) and find_spec("psycopg") is None:
        raise lacking("a database as `storage`", "psycopg[binary]")
    from sncl.tuning.study import Standing, Study, StudyJob, take_trials

    usual = search.experiment({}, 0)
    check_memory(usual, make_stream(usual, data))  # what is wrong with the data would be wrong with every trial
    job = StudyJob(search, storage, out, trials, data)
    study = Study(job)
    on_gpu = usual.device.startswith("cuda")
    usual_workers = RUNS_ON_A_GPU if on_gpu else max(1, cores() // usual.threads)
    at_once = min(trials, workers or (usual_workers if fleet is None else FLEET_WORKERS))
    watched = Watched(search, trials, min(study.standing().finished, trials), at_once)
    with live(watched.view, console):
        try:
            if fleet is not None:
                calls = Calls(
                    carrying(take_trials),
                    [job] * at_once,
                    out.absolute().parent,
                    resources_of([usual]),
                    (*KINDS, Standing),
                )
                fleet.run(calls, watched.tell, lambda text: console.print(as_options(text)))
            elif on_gpu:
                with exact_kernels():
                    run_in_threads(take_trials, [job] * at_once, at_once, watched.tell)
            elif at_once == 1:
                study.work(partial(watched.tell, 0))
            else:
                run_all(carrying(take_trials), [job] * at_once, at_once, watched.tell)
        except SnclError:
            if study.standing().finished < trials:  # else the others finished what one left
                raise
    return study.close()
