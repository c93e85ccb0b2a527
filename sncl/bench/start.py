"""First seconds: what people wait for before anything is learned, beside what `import torch` takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sncl.errors import SnclError

TURNS = 3  # of which the median counts
SEEDS = 3
TORCH = "import torch"
IMPORT = "import sncl; sncl.Learner"
RUN = {"stream": "seq-digits", "method": "er", "tasks": 1, "epochs": 1, "device": "cpu"}  # among the shortest there are


@dataclass(frozen=True)
class StartTime:
    """Seconds of a whole process, from its start to its end."""

    what: str
    seconds: float
    ratio: float  # to `import torch`


def measure_start() -> list[StartTime]:
    """The median over a few turns, in each of which every process runs once."""
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        one, some = training(seed=0, out=f"{folder}/seed-0"), training(seeds=SEEDS, out=folder)
        seconds(some)  # the runs themselves
        commands = {
            TORCH: python(TORCH),
            IMPORT: python(IMPORT),
            "sncl train, finished": one,
            f"sncl train, {SEEDS} seeds, finished": some,
        }
        turns = [{what: seconds(command) for what, command in commands.items()} for _ in range(TURNS)]
    medians = {what: median(turn[what] for turn in turns) for what in commands}
    return [StartTime(what, taken, taken / medians[TORCH]) for what, taken in medians.items()]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def training(**options: str | int) -> list[str]:
    """The command that trains, or shows what it has trained."""
    return [sys.executable, "-m", "sncl", "train", *(f"--{name}={value}" for name, value in (RUN | options).items())]


def seconds(command: Sequence[str]) -> float:
    """How long a process takes; one that fails is an error with its last line."""
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - begun
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SnclError(f"{' '.join(command[1:])} failed here: {last}")
    return taken
