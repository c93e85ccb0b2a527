"""Several runs at once, as a training command with several seeds makes them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sncl.bench.single import StepTime
from sncl.bench.subjects import subject
from sncl.bench.timing import peak_mb, wait_for
from sncl.runs.experiment import Experiment
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.parallel import run_all, run_in_threads


class SharedRun(NamedTuple):
    """What one run of a benchmark does: so many steps, started together with ``runs`` - 1 others."""

    experiment: Experiment
    steps: int
    runs: int
    folder: str


def measure_together(experiment: Experiment, alone: StepTime, runs: int) -> StepTime:
    """The same run with so many seeds at once; time is divided by the steps of all."""
    steps = max(10, int(1000 / alone.ms_per_step))
    on_gpu = experiment.device.startswith("cuda")
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        cases = [SharedRun(replace(experiment, seed=seed), steps, runs, folder) for seed in range(runs)]
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            with exact_kernels():
                spans = run_in_threads(run_steps, cases, runs)
        else:
            spans = run_all(run_steps, cases, runs)
    wall = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    ms = 1000 * wall / (steps * runs)
    return replace(
        alone,
        runs=runs,
        ms_per_step=ms,
        ratio=ms / alone.bound_ms,
        images_per_s=alone.images_per_s * alone.ms_per_step / ms,
        peak_mb=peak_mb(experiment.device) if on_gpu else sum(peak for _, _, peak in spans),
    )


def run_steps(case: SharedRun, report: Callable[[Any], None]) -> tuple[float, float, float]:
    """When this run began and ended, and its peak memory; it begins when all the others are ready."""
    with on_threads(case.experiment.threads):
        learner, _, batches = subject(case.experiment)
        folder = Path(case.folder)
        wait_for(learner.device)
        (folder / str(case.experiment.seed)).touch()
        while len(list(folder.iterdir())) < case.runs:
            time.sleep(0.01)
        begun = time.time()
        for _ in range(case.steps):
            learner.learn(*next(batches))
        wait_for(learner.device)
        return begun, time.time(), peak_mb(case.experiment.device)
