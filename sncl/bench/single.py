"""One run alone: how long a step takes beside the bare network, and what a whole run spends outside its steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from sncl.bench.subjects import samples_of_a_step, subject
from sncl.bench.timing import passes, peak_mb, steps_within, timed
from sncl.runs.experiment import Experiment
from sncl.streams.stream import Stream
from sncl.training.background_tests import BackgroundTests
from sncl.training.checkpoint import write_checkpoint
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.evaluate import Assessment, accuracies, tested_after
from sncl.training.folder import CHECKPOINT_SECONDS
from sncl.training.learner import Learner
from sncl.training.parallel import sharing_cores
from sncl.training.run import LOG_LINES
from sncl.training.schedule import total_steps

TIMINGS = 7  # of which the median counts
TESTED = 5  # tasks
TESTED_SECONDS = 2  # at most

Batches = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class StepTime:
    """One line of the table. ``ms_per_step`` is wall time divided by the steps of all ``runs`` together."""

    device: str
    stream: str
    method: str
    memory: int
    runs: int
    ms_per_step: float
    bound_ms: float
    ratio: float
    images_per_s: float
    peak_mb: float


@dataclass(frozen=True)
class Overhead:
    """What a whole run spends outside its steps, in percent of its time: evaluations, checkpoints, reading losses.

    Of evaluations that are made beside steps counts what steps lose to them. ``tests_percent`` is the share of the
    evaluations alone.
    """

    device: str
    stream: str
    method: str
    percent: float
    evaluation_s: float
    checkpoints_s: float
    logging_s: float
    steps_s: float
    tests_percent: float


def measure_alone(experiment: Experiment) -> tuple[StepTime, Overhead]:
    """One run alone, timed in turns with the bare network."""
    with exact_kernels(), on_threads(experiment.threads):
        if experiment.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        learner, stream, batches = subject(experiment)
        samples = samples_of_a_step(learner, stream)
        bare, factor = passes(experiment, stream, samples)
        steps, times = steps_within(lambda: learner.learn(*next(batches)), learner.device), []
        bare_steps, bare_times = steps_within(bare, learner.device), []
        for _ in range(TIMINGS if steps > 1 else 1):
            times.append(timed(lambda: learner.learn(*next(batches)), steps, learner.device))
            bare_times.append(timed(bare, bare_steps, learner.device) * factor)
        ms, bound_ms = 1000 * median(times), 1000 * median(bare_times)
        found = StepTime(
            device=experiment.device,
            stream=experiment.stream,
            method=experiment.method,
            memory=experiment.memory,
            runs=1,
            ms_per_step=ms,
            bound_ms=bound_ms,
            ratio=ms / bound_ms,
            images_per_s=1000 * samples / ms,
            peak_mb=peak_mb(experiment.device),
        )
        return found, overhead(experiment, learner, stream, batches, ms / 1000)


class TimeOfTest(NamedTuple):
    """What testing one task takes: ``alone`` while nothing else is done; ``lost`` to a run that learns on, where it
    does, in ``steps`` of it."""

    alone: float
    lost: float
    steps: float

    def waited(self, tests: int, steps: int) -> float:
        """What a run loses to so many tests with so many steps before it needs them: the others wait."""
        beside = min(tests, steps / self.steps) if self.steps else tests
        return beside * self.lost + (tests - beside) * self.alone


def time_of_a_test(learner: Learner, stream: Stream, batches: Batches) -> TimeOfTest:
    """Of several, as a run by itself tests them, unless one alone takes long."""

    def alone(tasks: range) -> float:
        for task in tasks:  # made at the first call
            stream.test(task)
        return timed(lambda: accuracies(learner, stream, tasks), 1, learner.device) / len(tasks)

    with sharing_cores():
        one, several = alone(range(1)), range(min(TESTED, stream.test_tasks))
        if one * len(several) > TESTED_SECONDS:
            return TimeOfTest(one, *beside_steps(learner, stream, batches, range(1)))
        turns = [(alone(several), *beside_steps(learner, stream, batches, several)) for _ in range(TIMINGS)]
    return TimeOfTest(*map(median, zip(*turns, strict=True)))


def beside_steps(learner: Learner, stream: Stream, batches: Batches, tasks: range) -> tuple[float, float]:
    """What each test of these tasks costs the steps that are made meanwhile, in seconds, and how many these are."""
    steps, found = 0, list[Assessment]()
    begun = time.perf_counter()
    with BackgroundTests() as tests:
        tests.begin(learner, stream, tasks, found.append, beside=True)
        while not found:
            learner.learn(*next(batches))
            tests.look()
            steps += 1
    together = time.perf_counter() - begun
    without = steps * timed(lambda: learner.learn(*next(batches)), steps, learner.device) if steps else 0.0
    return max(0.0, together - without) / len(tasks), steps / len(tasks)


def seconds_of_tests(stream: Stream, epochs: int, test: TimeOfTest) -> float:
    """What a whole run loses to its tests; the untrained network and the last task are tested while it waits."""
    ends = [len(tested_after(stream, task)) for task in range(stream.tasks)]
    steps = [epochs * len(stream.positions(task, 0)) for task in range(1, stream.tasks)]
    beside = sum(test.waited(tests, more) for tests, more in zip(ends, steps, strict=False))
    return beside + (ends[-1] + stream.test_tasks) * test.alone


def overhead(
    experiment: Experiment, learner: Learner, stream: Stream, batches: Batches, seconds_per_step: float
) -> Overhead:
    """What a whole run would take, from some tests, one checkpoint and one reading of losses."""
    steps = total_steps(stream, experiment.epochs)
    evaluation = seconds_of_tests(stream, experiment.epochs, time_of_a_test(learner, stream, batches))
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        path = Path(folder) / "checkpoint"
        checkpoint = timed(lambda: write_checkpoint(path, learner.state(), learner.description()), 3, learner.device)
    checkpoints = checkpoint * (stream.tasks + steps * seconds_per_step / CHECKPOINT_SECONDS)
    losses = learner.learn(*stream.batch(0, stream.positions(0, 0)[0]))
    logging = LOG_LINES * timed(lambda: [float(loss) for loss in losses.values()], 10, learner.device)
    outside, inside = evaluation + checkpoints + logging, steps * seconds_per_step
    return Overhead(
        device=experiment.device,
        stream=experiment.stream,
        method=experiment.method,
        percent=100 * outside / (outside + inside),
        evaluation_s=evaluation,
        checkpoints_s=checkpoints,
        logging_s=logging,
        steps_s=inside,
        tests_percent=100 * evaluation / (outside + inside),
    )
