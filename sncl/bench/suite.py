"""What ``sncl bench`` measures: steps and tests of methods, memories and numbers of runs; rows; starts.

Everything is timed in turns inside one run: on a machine that does other things too, ratios mean more than
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sncl.bench.first_step import FirstStep, measure_first_step
from sncl.bench.rows import THROUGH, RowTime, measure_rows
from sncl.bench.single import Overhead, StepTime, measure_alone
from sncl.bench.start import StartTime, measure_start
from sncl.bench.subjects import SHAPES
from sncl.bench.together import measure_together
from sncl.errors import SnclError
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS
from sncl.streams.user.identity import UserData

PARTS = ("steps", "tests", "rows", "start", "first-step")
USUAL_PARTS = ("steps", "rows", "start")  # what is measured where nobody says what
USUAL_STREAMS = ("perm-mnist", "seq-cifar10")  # likewise
OF_STREAMS = ("steps", "tests", "first-step")
MEASURED_METHODS = ("er", "derpp", "sncl")
ROW_METHODS = ("er", "sncl")
MEMORIES = (200, 5120)
RUNS = (1, 2, 4, 8)

Telling = Callable[[str], None]


@dataclass
class Measured:
    """What was measured; lists of what was not are empty. ``steps`` are called rows in JSON, as they always were."""

    steps: list[StepTime] = field(default_factory=list)
    outside: list[Overhead] = field(default_factory=list)
    single_rows: list[RowTime] = field(default_factory=list)
    start: list[StartTime] = field(default_factory=list)
    first_steps: list[FirstStep] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        return {"rows": facts.pop("steps"), **facts}


def bench(
    device: str,
    streams: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    watch: Telling = lambda _: None,
    user_data: UserData | None = None,
    what: Sequence[str] | None = None,
) -> Measured:
    """Measure these streams and methods, or all there are, on this device; ``watch`` is told what is being measured.

    ``user_data``, where given, are measured instead of the benchmarks. ``what`` names some of ``PARTS``; usually they
    are the steps, and where no stream is named also single rows and the first seconds.
    """
    chosen = tuple(what or (USUAL_PARTS if streams is None and user_data is None else USUAL_PARTS[:1]))
    check(device, streams, methods, user_data, chosen)
    shapes = (user_data.name,) if user_data is not None else streams or USUAL_STREAMS
    found = Measured()
    if "rows" in chosen:
        bench_rows(found, methods or ROW_METHODS, device, watch)
    if "start" in chosen:
        watch("first seconds")
        found.start = measure_start()
    for stream in shapes:
        for method in methods or MEASURED_METHODS:
            if "first-step" in chosen:
                watch(f"{stream}, {method}, first step")
                found.first_steps.append(measure_first_step(stream, method, device))
            if "steps" in chosen:
                bench_method(found, stream, method, device, watch, user_data)
            elif "tests" in chosen:
                watch(f"{stream}, {method}, tests")
                experiment = plan(stream, method, memory=MEMORIES[0], device=device, user_data=user_data)
                found.outside.append(measure_alone(experiment)[1])
    return found


def check(
    device: str,
    streams: Sequence[str] | None,
    methods: Sequence[str] | None,
    user_data: UserData | None,
    what: Sequence[str],
) -> None:
    """Refuse what is not known, before anything is measured."""
    if unknown := [part for part in what if part not in PARTS]:
        raise SnclError(f"bench measures {', '.join(PARTS)}, not {unknown[0]!r}")
    if (streams or user_data) and not set(what) & set(OF_STREAMS):
        raise SnclError(f"`stream` is of {', '.join(OF_STREAMS)} alone; {' and '.join(what)} have rows of their own")
    if unknown := [stream for stream in streams or () if user_data is None and stream not in SHAPES]:
        raise SnclError(f"bench knows the shapes of {', '.join(SHAPES)}, not of {unknown[0]!r}")
    if unknown := [method for method in methods or () if method not in MEASURED_METHODS]:
        raise SnclError(f"bench measures {', '.join(MEASURED_METHODS)}, not {unknown[0]!r}")
    if "first-step" in what and (user_data is not None or not device.startswith("cuda")):
        given = "your own data" if user_data is not None else device
        raise SnclError(f"first-step is measured on a GPU and the shapes of {', '.join(SHAPES)}, not on {given}")


def bench_rows(found: Measured, methods: Sequence[str], device: str, watch: Telling) -> None:
    """Single rows with each method, through a learner and an estimator."""
    for method in methods:
        for through in THROUGH:
            watch(f"single rows, {method}, {through}")
            found.single_rows.append(measure_rows(method, through, device))


def bench_method(
    found: Measured, stream: str, method: str, device: str, watch: Telling, user_data: UserData | None
) -> None:
    """One method on one stream: alone with each memory, then several runs at once with the smallest."""
    alone: list[tuple[StepTime, Overhead]] = []
    for memory in MEMORIES:
        watch(f"{stream}, {method}, memory {memory}")
        alone.append(measure_alone(plan(stream, method, memory=memory, device=device, user_data=user_data)))
    small = (STREAMS[stream] if user_data is None else user_data).network == "mlp"
    several = RUNS if small or device.startswith("cuda") else RUNS[:1]  # a ResNet fills a CPU by itself
    times, outside = alone[0]
    together = []
    for runs in several[1:]:
        watch(f"{stream}, {method}, {runs} runs at once")
        experiment = plan(stream, method, memory=MEMORIES[0], device=device, user_data=user_data)
        together.append(measure_together(experiment, times, runs))
    found.steps += [each for each, _ in alone] + together
    found.outside.append(outside)
