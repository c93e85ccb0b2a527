"""How long a run is, as far as that is known before its data are read, and whether compiling its step is worth it.

Steps are counted, not seconds: the same command is then the same run, wherever and however often it is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sncl.methods.table import Settings
from sncl.streams.benchmarks import Benchmark
from sncl.streams.datasets.sources import READERS

if TYPE_CHECKING:
    from sncl.streams.user.identity import UserData

# From so many steps on a GPU ends first with the step compiled: in between what they are where compiled code is kept
# already and where it is not, see docs/performance.md.
WORTH_COMPILING = {"mlp": 2_500, "resnet18": 1_000}


def planned_steps(
    benchmark: Benchmark, tasks: int, epochs: int, settings: Settings, user_data: UserData | None = None
) -> int:
    """About how many steps a run has; its last batches may be short, and some samples are held out."""
    samples = READERS[benchmark.dataset].samples if user_data is None else user_data.rows
    shown = samples * tasks if benchmark.kind in ("perm", "rot") else samples * tasks // max(tasks, benchmark.tasks)
    return epochs * -(-shown // max(1, int(settings["batch_size"])))


def is_short(steps: int, benchmark: Benchmark) -> bool:
    """Whether a run of so many steps ends before its step would be compiled, or soon after."""
    return steps < WORTH_COMPILING[benchmark.network]
