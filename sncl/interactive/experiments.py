"""``sncl.run``: what ``sncl train`` does, as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sncl.errors import SnclError, nearest, suggestion
from sncl.executors.fleet import Fleet, choose_fleet
from sncl.interactive.displays import choose_display
from sncl.interactive.results import Results
from sncl.live.jobs import Display, run_watched
from sncl.methods.constructor import OwnMethod
from sncl.methods.method import Method
from sncl.methods.own import is_portable, name_method
from sncl.methods.table import MEANT_SETTINGS, Entry, Settings, entry, method_name, method_title
from sncl.runs.choosing import Chosen, choose
from sncl.runs.experiment import read_described
from sncl.runs.finished import finished_result
from sncl.runs.folders import RunFiles
from sncl.runs.job import Job
from sncl.runs.plan import benchmark_of, plan, usual_settings
from sncl.runs.summary import majority_warnings
from sncl.streams.user.spec import beside_benchmark, parse_spec
from sncl.training.folder import CHECKPOINT_SECONDS
from sncl.training.parallel import run_all
from sncl.training.stopping import heeding

Methods = OwnMethod | Iterable[OwnMethod] | Mapping[Any, Mapping[str, Any]]
Named = list[tuple[str, Settings]]  # methods by name, each with the settings it was given by itself


def run(
    stream: str | os.PathLike[str],
    methods: Methods,
    *,
    seeds: int | Sequence[int] = 1,
    memory: int | None = None,
    epochs: int | None = None,
    tasks: int | None = None,
    validation: float = 0.0,
    split: str | None = None,
    classes_per_task: int | None = None,
    cut: str | None = None,
    target: str | None = None,
    domain: str | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    numbers: str | Sequence[str] = (),
    folder: str | os.PathLike[str] = "runs",
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    precision: str = "auto",
    engine: str = "auto",
    threads: int | None = None,
    checkpoint: float = CHECKPOINT_SECONDS,
    keep_tasks: bool = False,
    tensorboard: bool = False,
    progress: bool = True,
    on: str = "local",
    slurm: Mapping[str, str] | None = None,
    **settings: Any,
) -> Results:
    """Train methods on a stream, as ``sncl train`` does, and return what came of it.

    >>> results = run("seq-digits", ["er", "sncl"], seeds=2, memory=100, epochs=1, progress=False)  # doctest: +SKIP
    >>> results.to_frame()  # doctest: +SKIP

    ``stream`` is one of ``sncl list`` or the path of your own data. ``methods`` is a name, a method of your own (a
    class, an object or an ``Entry``), a list of these, or a dictionary from each to its settings. ``seeds`` is how
    many (0, 1, ...) or a list of them. Keywords that are not listed are settings, such as ``lr=0.1``; each goes to all
    methods that have it, and one that none has is an error.

    Runs lie below ``folder`` under the names that the command line gives them: what is finished there is not run again,
    and what was stopped, by Ctrl-C or a kill, goes on in the same call. Several runs are made at once, in processes of
    their own. ``progress=False`` shows nothing meanwhile. ``on`` says where they are made: "local", "ray",
    "ray://HOST:PORT" or "slurm", with options such as ``slurm={"partition": "gpu"}``. The other arguments are the
    options of ``sncl train``; ``ignore``, ``categories`` and ``numbers`` name columns of a table.
    """
    display, fleet = choose_display(progress), choose_fleet(on, slurm)
    columns = ([each] if isinstance(each, str) else list(each) for each in (ignore, categories, numbers))
    spec = parse_spec(os.fspath(stream), cut, target, domain, size, *columns)
    if spec is None and (note := beside_benchmark(os.fspath(stream))):
        display.say(f"note: {note}")
    chosen = choose(os.fspath(stream), spec, {}, split, classes_per_task)
    common = partial(
        plan,
        chosen.stream,
        memory=memory,
        epochs=epochs,
        tasks=tasks,
        validation=validation,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        user_data=chosen.user_data,
        elsewhere=fleet is not None,
    )
    place, options = None if data is None else Path(data), (checkpoint, keep_tasks, tensorboard)
    jobs = []
    named = named_methods(methods)
    refuse_unknown(settings, known_names(chosen, [name for name, _ in named]))
    for method, own in named:
        given = settings_of(method, settings, own, chosen)
        for seed in seeds_of(seeds):
            experiment = common(method, seed=seed, settings=given)
            jobs.append(Job(experiment, Path(folder) / experiment.name(), place, *options))
    for line in chosen.lines(jobs[0].experiment):
        display.say(line)
    return run_missing(jobs, display, fleet)


def run_missing(jobs: Sequence[Job], display: Display, fleet: Fleet | None = None) -> Results:
    """The results of all jobs; those that are not there yet are run."""
    jobs = list({job.folder: job for job in jobs}.values())  # a method may be named twice
    stored = {job.folder: finished_result(job.experiment, job.folder, job.data) for job in jobs}
    missing = [job for job in jobs if stored[job.folder] is None]
    if finished := len(jobs) - len(missing):
        display.say(f"{finished} of {len(jobs)} runs were finished already, and are shown as they are")
    here = sorted({method_title(job.experiment.method) for job in missing if not is_portable(job.experiment.method)})
    if here and fleet is None and len(missing) > 1 and missing[0].experiment.device == "cpu":
        display.say(
            f"note: {', '.join(here)} is defined in this session, where no other process finds it, so the runs are "
            "made one after the other; in a module of its own they would be made at once"
        )
    if missing:
        try:
            with heeding():
                made = run_watched(missing, display, workers=partial(run_all, load_program=False), fleet=fleet)
        except KeyboardInterrupt:
            display.say("stopped; the same call goes on from the last checkpoint")
            raise
        stored |= {job.folder: result for job, result in zip(missing, made, strict=True)}
    found = [RunFiles(folder, read_described(folder), result) for folder, result in stored.items() if result]
    for warning in majority_warnings(run.result for run in found):
        display.say(f"warning: {warning}")
    return Results(found)


def named_methods(methods: Methods) -> Named:
    """Every method by its name, and the settings that were given for it alone."""
    if isinstance(methods, Mapping):
        several: list[tuple[Any, Mapping[str, Any]]] = list(methods.items())
    elif isinstance(methods, str | Method | type | Entry):
        several = [(methods, {})]
    else:
        several = [(method, {}) for method in methods]
    if not several:
        raise SnclError("`methods` names no method")
    named = []
    for method, own in several:
        if not isinstance(method, str | Method | type | Entry) or not isinstance(own, Mapping):
            raise SnclError(
                f"`methods` takes names and methods, or a dictionary from each to its settings; not {method!r}"
            )
        name, made_with = name_method(method)
        named.append((method_name(name), made_with | dict(own)))
    return named


def seeds_of(seeds: int | Sequence[int]) -> Sequence[int]:
    """The seeds to run: the first so many, or those that are named."""
    found = range(seeds) if isinstance(seeds, int) else list(seeds)
    if not found or not all(isinstance(seed, int) for seed in found):
        raise SnclError(f"`seeds` is at least 1, or a list of whole numbers, not {seeds!r}")
    return found


def known_names(chosen: Chosen, methods: Iterable[str]) -> set[str]:
    """All settings that one of these methods has on the stream."""
    usual = usual_settings(benchmark_of(chosen.stream, chosen.user_data, {}), chosen.user_data)
    return set(usual).union(*(entry(name).all_names() | entry(name).gone.keys() for name in methods))


def settings_of(method: str, common: Mapping[str, Any], own: Mapping[str, Any], chosen: Chosen) -> dict[str, str]:
    """What is set of one method, as text: of the common settings those it has, and its own."""
    known = known_names(chosen, [method])
    refuse_unknown(own, known)
    found = {key: value for key, value in common.items() if key in known} | dict(own)
    return {key: as_text(key, value) for key, value in found.items()} | chosen.settings


def refuse_unknown(given: Iterable[str], known: set[str]) -> None:
    for key in given:
        if key not in known:
            near = suggestion(nearest(key, known, MEANT_SETTINGS))
            raise SnclError(
                f"there is no argument and no setting {key!r}; {near}the settings are {', '.join(sorted(known))}"
            )


def as_text(key: str, value: Any) -> str:
    """A value as the command line is given it; layers may be a list of names."""
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    if value is None:
        raise SnclError(f"the setting `{key}` is a number or a text, not None; leave it out for the usual value")
    return str(value)
