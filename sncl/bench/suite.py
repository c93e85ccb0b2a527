"""What ``sncl bench`` measures: methods, sizes of the memory and numbers of runs at once.

Everything is timed in turns inside one run: on a machine that does other things too, ratios mean more than
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from sncl.bench.single import Overhead, StepTime, measure_alone
from sncl.bench.subjects import SHAPES
from sncl.bench.together import measure_together
from sncl.errors import SnclError
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS
from sncl.streams.user.identity import UserData

MEASURED_METHODS = ("er", "derpp", "sncl")
MEMORIES = (200, 5120)
RUNS = (1, 2, 4, 8)


def bench(
    device: str,
    streams: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    watch: Callable[[str], None] = lambda _: None,
    user_data: UserData | None = None,
) -> tuple[list[StepTime], list[Overhead]]:
    """Measure these streams and methods, or all there are, on this device; ``watch`` is told what is being measured.

    ``user_data``, where given, are measured instead of the benchmarks.
    """
    streams = (user_data.name,) if user_data is not None else streams or tuple(SHAPES)
    methods = methods or MEASURED_METHODS
    if unknown := [stream for stream in streams if user_data is None and stream not in SHAPES]:
        raise SnclError(f"bench knows the shapes of {' and '.join(SHAPES)}, not of {unknown[0]!r}")
    if unknown := [method for method in methods if method not in MEASURED_METHODS]:
        raise SnclError(f"bench measures {', '.join(MEASURED_METHODS)}, not {unknown[0]!r}")
    times: list[StepTime] = []
    overheads: list[Overhead] = []
    for stream in streams:
        for method in methods:
            some, overhead = bench_method(stream, method, device, watch, user_data)
            times += some
            overheads.append(overhead)
    return times, overheads


def bench_method(
    stream: str, method: str, device: str, watch: Callable[[str], None], user_data: UserData | None
) -> tuple[list[StepTime], Overhead]:
    """One method on one stream: alone with each memory, then several runs at once with the smallest."""
    times, overheads = [], []
    for memory in MEMORIES:
        watch(f"{stream}, {method}, memory {memory}")
        experiment = plan(stream, method, memory=memory, device=device, user_data=user_data)
        alone, overhead = measure_alone(experiment)
        times.append(alone)
        overheads.append(overhead)
    small = (STREAMS[stream] if user_data is None else user_data).network == "mlp"
    several = RUNS if small or device.startswith("cuda") else RUNS[:1]  # a ResNet fills a CPU by itself
    for runs in several[1:]:
        watch(f"{stream}, {method}, {runs} runs at once")
        experiment = plan(stream, method, memory=MEMORIES[0], device=device, user_data=user_data)
        times.append(measure_together(experiment, times[0], runs))
    return times, overheads[0]


def to_json(times: Sequence[StepTime], overheads: Sequence[Overhead]) -> dict[str, Any]:
    return {"rows": [asdict(each) for each in times], "outside": [asdict(each) for each in overheads]}
