"""How fast a training step is here, beside what the network alone would need: ``sncl bench``.

Data are random and of the benchmark's shapes, so nothing has to be there; a person's own data are read. Everything is
timed in turns inside one run: on a machine that does other things too, ratios mean more than milliseconds.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.runs.experiment import Experiment, make_learner, make_network, make_stream, plan
from sncl.streams.arrange import arrange
from sncl.streams.benchmarks import STREAMS
from sncl.streams.datasets.sources import Dataset
from sncl.streams.stream import Stream
from sncl.streams.user.data import UserData
from sncl.tensors.random import generator
from sncl.training.checkpoint import write_checkpoint
from sncl.training.engine import computed_in, exact_kernels, on_threads
from sncl.training.learner import Learner
from sncl.training.parallel import run_all, run_in_threads
from sncl.training.run import CHECKPOINT_SECONDS, LOG_LINES, accuracies, tested_after, total_steps

METHODS = ("er", "derpp", "sncl")
MEMORIES = (200, 5120)
RUNS = (1, 2, 4, 8)
SHAPES = {  # stream -> shape of an image, training rows, test rows, classes
    "perm-mnist": ((1, 28, 28), 60_000, 10_000, 10),
    "seq-cifar10": ((3, 32, 32), 50_000, 10_000, 10),
}
LARGE_BATCH = 2048  # rows at which a GPU is as fast as it gets
ROUNDS = 7


@dataclass(frozen=True)
class Row:
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
class Outside:
    """What a whole run spends outside its steps, in percent of its time: evaluations, checkpoints, reading losses."""

    device: str
    stream: str
    method: str
    percent: float
    evaluation_s: float
    checkpoints_s: float
    logging_s: float
    steps_s: float


class Case(NamedTuple):
    """What one run of a benchmark does: so many steps, started together with ``runs`` - 1 others."""

    experiment: Experiment
    steps: int
    runs: int
    folder: str


def bench(
    device: str,
    streams: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    watch: Callable[[str], None] = lambda _: None,
    user_data: UserData | None = None,
) -> tuple[list[Row], list[Outside]]:
    """Measure these, or everything there is, on this device; ``watch`` is told what is being measured.

    ``own`` are a person's own data, which are measured instead.
    """
    streams, methods = (user_data.name,) if user_data is not None else streams or tuple(SHAPES), methods or METHODS
    if unknown := [stream for stream in streams if user_data is None and stream not in SHAPES]:
        raise SnclError(f"bench knows the shapes of {' and '.join(SHAPES)}, not of {unknown[0]!r}")
    if unknown := [method for method in methods if method not in METHODS]:
        raise SnclError(f"bench measures {', '.join(METHODS)}, not {unknown[0]!r}")
    rows: list[Row] = []
    outside: list[Outside] = []
    for stream in streams:
        small = (STREAMS[stream] if user_data is None else user_data).network == "mlp"
        several = RUNS if small or device.startswith("cuda") else RUNS[:1]  # a ResNet fills a CPU by itself
        for method in methods:
            alone = {}
            for memory in MEMORIES:
                watch(f"{stream}, {method}, memory {memory}")
                alone[memory], more = measure(plan(stream, method, memory=memory, device=device, user_data=user_data))
                rows.append(alone[memory])
                outside += [more] if memory == MEMORIES[0] else []
            for runs in several[1:]:
                watch(f"{stream}, {method}, {runs} runs at once")
                experiment = plan(stream, method, memory=MEMORIES[0], device=device, user_data=user_data)
                rows.append(together(experiment, alone[MEMORIES[0]], runs))
    return rows, outside


def subject(experiment: Experiment) -> tuple[Learner, Stream, Iterator[tuple[Tensor, Tensor]]]:
    """A learner in the middle of a stream of random images, the stream and its batches without end."""
    stream = random_stream(experiment) if experiment.user_data is None else make_stream(experiment, None)
    learner = make_learner(experiment, stream)
    batches = endless(stream)
    learner.learn(*next(batches))
    fill(learner.memory, seen=total_rows(experiment, stream) // 2)
    for _ in range(2):  # compiled and captured
        learner.learn(*next(batches))
    return learner, stream, batches


def random_stream(experiment: Experiment) -> Stream:
    """Random images of the shape of a benchmark's."""
    shape, train, test, classes = SHAPES[experiment.stream]
    benchmark = STREAMS[experiment.stream]
    draw = generator(experiment.seed, "bench")
    images = torch.randint(256, (train, *shape), dtype=torch.uint8, generator=draw)
    labels = torch.randint(classes, (train,), generator=draw)
    source = Dataset("random", images, labels, images[:test], labels[:test], classes)
    batch_size = int(experiment.settings["batch_size"])
    stream = arrange(experiment.stream, benchmark, source, experiment.seed, batch_size, experiment.tasks)
    return stream.to(experiment.device)


def fill(memory: Memory | None, seen: int) -> None:
    """Make a memory that holds a few rows look as in mid-stream: full, and admitting as seldom."""
    assert memory is not None  # all that is measured here replays
    few = len(memory)
    for stored in memory.fields.values():
        stored.copy_(stored[torch.arange(memory.capacity, device=stored.device) % few])
    memory.count = memory.count._replace(seen=seen, in_task=seen)


def endless(stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
    epoch, usual = 0, min(stream.batch_size, len(stream.phases[0].rows))
    while True:
        for positions in stream.positions(0, epoch):
            if len(positions) == usual:
                yield stream.batch(0, positions)
        epoch += 1


def total_rows(experiment: Experiment, stream: Stream) -> int:
    return experiment.epochs * sum(len(phase.rows) for phase in stream.phases)


def rows_of_a_step(learner: Learner, stream: Stream) -> int:
    assert learner.memory is not None
    wanted = (learner.method.replayed_rows(draw, learner.replay) for draw in range(learner.method.draws))
    return stream.batch_size + sum(min(rows, learner.memory.capacity) for rows in wanted)


def measure(experiment: Experiment) -> tuple[Row, Outside]:
    """One run alone, timed in turns with the bare network."""
    with exact_kernels(), on_threads(experiment.threads):
        if experiment.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        learner, stream, batches = subject(experiment)
        rows = rows_of_a_step(learner, stream)
        bare, factor = passes(experiment, stream, rows)
        steps, times = steps_within(lambda: learner.learn(*next(batches)), learner.device), []
        bare_steps, bare_times = steps_within(bare, learner.device), []
        for _ in range(ROUNDS if steps > 1 else 1):
            times.append(timed(lambda: learner.learn(*next(batches)), steps, learner.device))
            bare_times.append(timed(bare, bare_steps, learner.device) * factor)
        ms, bound_ms = 1000 * median(times), 1000 * median(bare_times)
        row = Row(
            device=experiment.device,
            stream=experiment.stream,
            method=experiment.method,
            memory=experiment.memory,
            runs=1,
            ms_per_step=ms,
            bound_ms=bound_ms,
            ratio=ms / bound_ms,
            images_per_s=1000 * rows / ms,
            peak_mb=peak_mb(experiment.device),
        )
        return row, outside_steps(experiment, learner, stream, ms / 1000)


def passes(experiment: Experiment, stream: Stream, rows: int) -> tuple[Callable[[], None], float]:
    """The bare network's forward and backward pass, and the part of its time that so many rows take.

    On a CPU it is made on just these rows. On a GPU, where a small batch mostly waits for launches, the bound is the
    share of these rows in a batch of thousands.
    """
    device = torch.device(experiment.device)
    on_gpu, precision = device.type == "cuda", getattr(torch, experiment.precision)
    many = LARGE_BATCH if on_gpu else rows
    net = make_network(experiment, stream).to(device)
    x = torch.rand(many, *stream.shape, device=device)
    y = torch.randint(stream.classes, (many,), device=device)
    if on_gpu and x.dim() == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run() -> None:
        with computed_in(precision, device):
            logits = net(x)
        F.cross_entropy(logits.float(), y).backward()
        for parameter in net.parameters():
            parameter.grad = None

    run()
    return run, rows / many


def steps_within(step: Callable[[], Any], device: torch.device, seconds: float = 0.3) -> int:
    """How often ``step`` fits into a part of a second, at least once."""
    return max(1, int(seconds / timed(step, 1, device)))


def timed(step: Callable[[], Any], times: int, device: torch.device) -> float:
    """Seconds of one step, when so many are made in a row."""
    wait_for(device)
    begun = time.perf_counter()
    for _ in range(times):
        step()
    wait_for(device)
    return (time.perf_counter() - begun) / times


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream().synchronize()


def peak_mb(device: str) -> float:
    """The most memory in use so far: of the GPU, or of this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def outside_steps(experiment: Experiment, learner: Learner, stream: Stream, seconds_per_step: float) -> Outside:
    """What a whole run would take, from one evaluation, one checkpoint and one reading of losses."""
    steps = total_steps(stream, experiment.epochs)
    tests = sum(len(tested_after(stream, task)) for task in range(stream.tasks)) + stream.test_tasks  # + untrained
    stream.test(0)  # made at the first call
    evaluation = tests * timed(lambda: accuracies(learner, stream, range(1)), 1, learner.device)
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        path = Path(folder) / "checkpoint"
        checkpoint = timed(lambda: write_checkpoint(path, learner.state(), learner.description()), 3, learner.device)
    checkpoints = checkpoint * (stream.tasks + steps * seconds_per_step / CHECKPOINT_SECONDS)
    losses = learner.learn(*stream.batch(0, stream.positions(0, 0)[0]))
    logging = LOG_LINES * timed(lambda: [float(loss) for loss in losses.values()], 10, learner.device)
    outside, inside = evaluation + checkpoints + logging, steps * seconds_per_step
    return Outside(
        device=experiment.device,
        stream=experiment.stream,
        method=experiment.method,
        percent=100 * outside / (outside + inside),
        evaluation_s=evaluation,
        checkpoints_s=checkpoints,
        logging_s=logging,
        steps_s=inside,
    )


def together(experiment: Experiment, alone: Row, runs: int) -> Row:
    """Several runs at once, as ``sncl train --seeds`` makes them."""
    steps = max(10, int(1000 / alone.ms_per_step))
    on_gpu = experiment.device.startswith("cuda")
    with tempfile.TemporaryDirectory(prefix="sncl-") as folder:
        cases = [Case(replace(experiment, seed=seed), steps, runs, folder) for seed in range(runs)]
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


def run_steps(case: Case, report: Callable[[Any], None]) -> tuple[float, float, float]:
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


def as_json(rows: list[Row], outside: list[Outside]) -> dict[str, Any]:
    return {"rows": [asdict(row) for row in rows], "outside": [asdict(each) for each in outside]}
