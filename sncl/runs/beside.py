"""The step of an experiment compiled in a process of its own, for a run beside others on a GPU."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import BoundedSemaphore, Event, Thread
from typing import Any, NamedTuple

import torch

from sncl.errors import SnclError
from sncl.methods.own import carrying, is_portable
from sncl.runs.build import make_learner
from sncl.runs.experiment import PLACE, Experiment
from sncl.streams.stream import Stream
from sncl.streams.transforms import Transform
from sncl.tensors.random import generator
from sncl.training.compiling import VARIANTS
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.learner import Learner
from sncl.training.parallel import cores, run_all
from sncl.training.stopping import stop_if_asked

SAME_STEP = ("seed", "data", "memory", "epochs", "tasks", "validation", *PLACE)  # decide a run, not its compiled step
SAME_STEP_SETTINGS = ("lr", "ema", "clip", "momentum", "weight_decay", "lr_drop", "lr_drop_part")
COMPILERS = 4  # processes at a time, which share the cores
STEADY_STEPS = 3  # once the memory has what is replayed: compiled, captured, replayed
HEARD_SECONDS = 0.5
PLACES = BoundedSemaphore(COMPILERS)


class Samples(NamedTuple):
    """What a learner is made for, of a stream: all that a compiled step depends on."""

    shape: tuple[int, ...]
    classes: int
    transform: Transform
    dtype: torch.dtype
    rows: int  # of a batch
    boundaries: bool


class FirstSteps(NamedTuple):
    """What the other process is to make, and to compile for it."""

    experiment: Experiment
    samples: Samples


@contextmanager
def beside_others(experiment: Experiment, stream: Stream, learner: Learner) -> Iterator[None]:
    """Run an experiment within the block, beside those that other threads run."""
    if learner.engine != "graph" or not is_portable(experiment.method):
        yield
        return
    transform = replace(stream.transform)  # type: ignore[type-var]  # without what it keeps on the device
    samples = Samples(
        stream.shape, stream.classes, transform, stream.x.dtype, len(stream.positions(0, 0)[0]), stream.boundaries
    )
    with VARIANTS.taking_part(variant_of(experiment), lambda: compile_elsewhere(FirstSteps(experiment, samples))):
        yield


def variant_of(experiment: Experiment) -> str:
    """What runs with the same compiled step have in common. One name too many costs time, one too few a wait."""
    facts = {key: value for key, value in experiment.identity().items() if key not in SAME_STEP}
    facts["settings"] = {key: value for key, value in experiment.settings.items() if key not in SAME_STEP_SETTINGS}
    return json.dumps(facts, sort_keys=True)


def compile_elsewhere(order: FirstSteps) -> None:
    """Have another process fill the cache of compiled code; what it cannot compile, this one does."""

    def heed(number: int, report: Any) -> None:
        stop_if_asked()

    try:
        with PLACES:
            run_all(carrying(compile_step), [order], 1, heed, load_program=False)
    except (SnclError, RuntimeError):
        return


def compile_step(order: FirstSteps, report: Callable[[Any], None]) -> None:
    """In that process: make the first steps of the experiment, and be heard of meanwhile."""
    from torch._inductor import config as compiler

    warnings.simplefilter("ignore")  # what there is to say, the run says itself
    compiler.compile_threads = max(1, cores() // COMPILERS)
    done = Event()

    def tell() -> None:
        report(None)
        while not done.wait(HEARD_SECONDS):
            report(None)

    telling = Thread(target=tell)
    telling.start()
    try:
        make_steps(order)
    finally:
        done.set()
        telling.join()


def make_steps(order: FirstSteps) -> Learner:
    """Steps on random samples, until all are of the usual form: of a first task, and of a second one."""
    experiment, samples = order
    draw = generator(0, "compiling")
    x = torch.randint(256, (samples.rows, *samples.shape), generator=draw).to(samples.dtype)
    y = torch.randint(samples.classes, (samples.rows,), generator=draw)
    with exact_kernels(), on_threads(experiment.threads):
        learner = make_learner(experiment, samples)
        filling = -(-learner.replay * max(1, learner.method.draws) // samples.rows)
        for _ in range(2 if samples.boundaries else 1):
            for _ in range(filling + STEADY_STEPS):
                learner.learn(x.to(learner.device), y.to(learner.device))
            if samples.boundaries:
                learner.boundary(x.to(learner.device), y.to(learner.device))
    return learner
