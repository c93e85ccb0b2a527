"""How much memory a process takes while a stream goes by, which should depend on the
learner and not on the stream's length.

    python benchmarks/memory_of_streams.py
    python benchmarks/memory_of_streams.py --rows 100000 --tasks 16   # two minutes

Every subject is measured in a process of its own: resident memory when so many rows were learned, or tasks were learned
and tested. Rows have 30 random features and come in batches of 100; tasks are permutations of random images of MNIST's
shape, 1,280 to learn from and 10,000 to test on. Linux only. Numbers of ours are in docs/performance.md.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sncl import Item, Late, Learner, follow
from sncl.bench.subjects import random_stream
from sncl.bench.timing import peak_mb
from sncl.networks.mlp import MLP
from sncl.runs.build import make_learner
from sncl.runs.plan import plan
from sncl.streams.stream import Phase
from sncl.training.run import run

METHODS = ("er", "sncl")
BATCH, FEATURES, CLASSES = 100, 30, 10
PAGE = os.sysconf("SC_PAGE_SIZE")
Say = Callable[[int], None]


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def learner(method: str) -> Learner:
    torch.manual_seed(0)
    return Learner(MLP(FEATURES, CLASSES), method, memory=500, device="cpu")


def batches(rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    for _ in range(rows // BATCH):
        x = torch.rand(BATCH, FEATURES, generator=draw)
        yield x, x[:, :CLASSES].argmax(1)


def learned(method: str, rows: int, say: Say) -> None:
    """``Learner.learn`` in batches."""
    subject = learner(method)
    for number, (x, y) in enumerate(batches(rows), 1):
        subject.learn(x, y)
        say(number * BATCH)


def followed(method: str, rows: int, say: Say) -> None:
    """``sncl.follow``: of every batch the first third has its labels, the second gets them a thousand batches later,
    the last never; of each, some samples have no id. A snapshot every minute."""
    third = BATCH // 3

    def items() -> Iterator[Any]:
        late: list[tuple[list[int], torch.Tensor]] = []
        for number, (x, y) in enumerate(batches(rows)):
            yield x[:third], y[:third]
            ids = list(range(number * third, (number + 1) * third))
            yield Item(x[third : 2 * third], ids=ids)
            yield x[2 * third :]
            late.append((ids, y[third : 2 * third]))
            if len(late) > 1000:
                yield Late(*late.pop(0))

    with tempfile.TemporaryDirectory() as folder:
        for answer in follow(learner(method), items(), snapshot=Path(folder) / "snapshot"):
            say(answer.position.rows)


def trained(method: str, tasks: int, say: Say) -> None:
    """A run of ``sncl train`` from its first task to its last."""
    stream = random_stream(plan("perm-mnist", method, memory=200, tasks=tasks, device="cpu"))
    short = tuple(Phase(rows[:1280], domains[:1280]) for rows, domains in stream.phases)
    experiment = plan("perm-mnist", method, memory=200, tasks=tasks, device="cpu")
    short_stream = replace(stream, phases=short)
    with tempfile.TemporaryDirectory() as folder:

        def watch(moment: Any) -> None:
            if moment.accuracy is not None:
                say(moment.task + 1)

        run(make_learner(experiment, short_stream), short_stream, 1, Path(folder), {}, watch)


def measure(subject: Callable[[str, int, Say], None], method: str, marks: list[int]) -> None:
    """Say how much is resident when the stream is at each of the marks."""
    torch.set_num_threads(1)
    begun, before, found = time.perf_counter(), resident_mb(), []
    waiting = list(marks)

    def say(reached: int) -> None:
        if waiting and reached >= waiting[0]:
            waiting.pop(0)
            found.append(f"{resident_mb():.0f}")

    subject(method, marks[-1], say)
    cells = [subject.__name__, method, f"{before:.0f}", *found, f"{peak_mb('cpu'):.0f}"]
    print(f"| {' | '.join(cells)} | {time.perf_counter() - begun:.0f} s |", flush=True)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rows", type=int, default=10_000_000)
    given.add_argument("--tasks", type=int, default=80)
    given.add_argument("--only", choices=["learned", "followed", "trained"])
    chosen = given.parse_args()
    rows = [max(1, chosen.rows // part) for part in (100, 10, 5, 2, 1)]
    tasks = [max(1, chosen.tasks // part) for part in (16, 4, 2, 1)]
    if chosen.only != "trained":
        print(f"| | method | before | {' | '.join(f'{mark:,} rows' for mark in rows)} | peak | |", flush=True)
    for subject in (learned, followed):
        if chosen.only in (None, subject.__name__):
            for method in METHODS:
                alone(subject, method, rows)
    if chosen.only in (None, "trained"):
        for count in tasks:  # the tests of all tasks are there from the beginning: a run of its own for each number
            print(f"| | method | before | task 1 of {count} | task {count} | peak | |", flush=True)
            for method in METHODS:
                alone(trained, method, [1, count])


def alone(*args: Any) -> None:
    """Measure in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=args)
    process.start()
    process.join()


if __name__ == "__main__":
    main()
