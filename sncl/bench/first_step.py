"""The first step of a run on a GPU: compiled and captured with nothing prepared, again in a new process, or eager."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sncl.bench.subjects import endless, random_stream
from sncl.bench.timing import timed, wait_for
from sncl.errors import SnclError
from sncl.runs.build import make_learner
from sncl.runs.plan import plan
from sncl.training.engine import exact_kernels, on_threads

FIRST = 6  # steps, within which a step is compiled and captured
FOLLOWING = 50  # steps that are like all that come later
CHOSEN = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # by the user, for what is compiled
WITHIN = ("XDG_CACHE_HOME", "TMPDIR")  # where it lies without a choice
WORKER = "from sncl.bench.first_step import main; main()"
MEMORY = 200


@dataclass(frozen=True)
class FirstStep:
    """Seconds until a step has been compiled and captured, in a process of its own.

    ``cold`` has nothing on disk that was compiled before, ``warm`` what the cold process left, ``eager`` does not
    compile. ``pays_after`` is the number of steps from which on the warm graph ends before eager steps would; None
    where it never does.
    """

    device: str
    stream: str
    method: str
    cold_s: float
    warm_s: float
    eager_s: float
    ratio: float  # of warm to cold
    graph_ms: float
    eager_ms: float
    pays_after: int | None


def measure_first_step(stream: str, method: str, device: str) -> FirstStep:
    """Three processes one after the other: cold, warm and eager."""
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        (cold, _), (warm, graph), (eager, as_written) = (
            in_a_process({"stream": stream, "method": method, "device": device, "engine": engine}, folder)
            for engine in ("graph", "graph", "eager")
        )
    gain = as_written - graph
    pays = None if gain <= 0 else max(0, math.ceil((warm - eager) / gain))
    return FirstStep(
        device=device,
        stream=stream,
        method=method,
        cold_s=cold,
        warm_s=warm,
        eager_s=eager,
        ratio=warm / cold,
        graph_ms=1000 * graph,
        eager_ms=1000 * as_written,
        pays_after=pays,
    )


def in_a_process(chosen: Mapping[str, str], folder: str) -> tuple[float, float]:
    """:func:`first_steps` in a new process that keeps below ``folder`` what it compiles."""
    place = {name: value for name, value in os.environ.items() if name not in CHOSEN} | dict.fromkeys(WITHIN, folder)
    command = [sys.executable, "-c", WORKER, json.dumps(chosen)]
    done = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SnclError(f"the first step of {chosen['method']} on {chosen['stream']} failed: {last}")
    first, following = json.loads(done.stdout.splitlines()[-1])
    return first, following


def first_steps(chosen: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of the first steps together, beyond those of as many later ones; and seconds of a later one."""
    experiment = plan(
        chosen["stream"], chosen["method"], memory=MEMORY, device=chosen["device"], engine=chosen["engine"]
    )
    with exact_kernels(), on_threads(experiment.threads):
        stream = random_stream(experiment)
        batches = endless(stream)
        learner = make_learner(experiment, stream)
        ready = [next(batches) for _ in range(FIRST)]
        wait_for(learner.device)
        begun = time.perf_counter()
        for x, y in ready:
            learner.learn(x, y)
        wait_for(learner.device)
        first = time.perf_counter() - begun
        following = timed(lambda: learner.learn(*next(batches)), FOLLOWING, learner.device)
    return max(0.0, first - FIRST * following), following


def main() -> None:
    """What a process of :func:`in_a_process` does."""
    print(json.dumps(first_steps(json.loads(sys.argv[1]))))
