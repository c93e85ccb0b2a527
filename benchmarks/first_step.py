"""What comes before the steady steps of a run on a GPU: compiling and capturing the first ones.

    python benchmarks/first_step.py                 # about three minutes on a GPU
    python benchmarks/first_step.py --device cpu    # only whether the script works

Random images of seq-cifar10's shapes, memory 200. It starts with an empty folder of compiled code, which it removes
again, and ends what is still running after ``--seconds``. Four parts, each in a process of its own:

1. SNCL, cold: nothing is compiled yet.
2. SNCL, warm: the next process. Also the time of a step by both engines, from which follows how long a run must be to
   be worth compiling.
3. Eight runs of SNCL in threads, and beside them a ninth and a tenth (DER++, ER), which are compiled elsewhere, side by
   side: when these make their first step, and what the eight do meanwhile.
4. The same with a ninth (DER) that is compiled where it runs, as all were before.

Numbers of ours are in docs/performance.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

BEGUN = time.perf_counter()

import torch  # noqa: E402

from sncl.bench.subjects import random_stream  # noqa: E402
from sncl.bench.timing import wait_for  # noqa: E402
from sncl.runs.beside import beside_others  # noqa: E402
from sncl.runs.build import make_learner  # noqa: E402
from sncl.runs.experiment import Experiment  # noqa: E402
from sncl.runs.plan import plan  # noqa: E402
from sncl.streams.stream import Stream  # noqa: E402
from sncl.training.code_cache import CHOSEN  # noqa: E402
from sncl.training.engine import exact_kernels, on_threads  # noqa: E402
from sncl.training.learner import Learner  # noqa: E402
from sncl.training.parallel import run_in_threads  # noqa: E402

EIGHT, EPOCH = 8, 100  # batches until a short one comes
ALONE, AFTER = 5.0, 3.0  # seconds of the eight by themselves, before and behind


def experiment(device: str, method: str, engine: str = "auto", seed: int = 0) -> Experiment:
    stream = "seq-cifar10" if device == "cuda" else "perm-mnist"
    return plan(stream, method, memory=200, device=device, engine=engine, seed=seed)


def batches(stream: Stream) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without end; now and then a short one, as at the end of an epoch."""
    number = 0
    while True:
        for positions in stream.positions(0, number):
            number += 1
            yield stream.batch(0, positions[: len(positions) // 2] if number % EPOCH == 0 else positions)


def step_ms(learner: Learner, feed: Iterator[Any], steps: int) -> float:
    wait_for(learner.device)
    begun = time.perf_counter()
    for _ in range(steps):
        learner.learn(*next(feed))
    wait_for(learner.device)
    return 1000 * (time.perf_counter() - begun) / steps


def say(*words: object) -> None:
    print(f"[{time.perf_counter() - BEGUN:6.1f} s]", *words, flush=True)


def counted() -> str:
    """What the caches of the compiler were asked for."""
    from torch._dynamo.utils import counters

    found = counters["aot_autograd"] + counters["inductor"]
    return ", ".join(f"{name} {found[name]}" for name in sorted(found) if "cache" in name)


def first_steps(learner: Learner, feed: Iterator[Any]) -> None:
    """Each of the first steps, until they are steady."""
    for name in ("eager (network prepared)", "compiled", "captured", "replayed"):
        say(f"{name}: {step_ms(learner, feed, 1) / 1000:.2f} s")
    say(f"caches: {counted()}")


def alone(device: str, warm: bool) -> None:
    say("loaded")
    chosen = experiment(device, "sncl")
    stream = random_stream(chosen)
    learner, feed = make_learner(chosen, stream), batches(stream)
    wait_for(learner.device)
    say(f"stream and learner made, engine {learner.engine}")
    with exact_kernels(), on_threads(chosen.threads):
        first_steps(learner, feed)
        say(f"code in {os.environ.get(CHOSEN)}")
        if warm:
            for name in ("sncl", "derpp", "er"):
                other = make_learner(experiment(device, name, "eager"), stream)
                for _ in range(3):
                    other.learn(*next(feed))
                say(f"eager, {name}: {step_ms(other, feed, 40):.2f} ms a step")
            say(f"{learner.engine}, sncl: {step_ms(learner, feed, 300):.2f} ms a step")


def together(device: str, methods: tuple[str, ...], elsewhere: bool) -> None:
    """Eight steady runs, and others that start beside them."""
    stream = random_stream(experiment(device, "sncl"))
    steady, done = Barrier(EIGHT + 1 + len(methods)), Event()
    times: dict[int, list[float]] = {number: [] for number in range(EIGHT)}

    def run(job: tuple[int, str], report: Any) -> float:
        number, method = job
        chosen = experiment(device, method, seed=number)
        learner, feed = make_learner(chosen, stream), batches(stream)
        if number < EIGHT:
            with beside_others(chosen, stream, learner):
                for _ in range(6):
                    learner.learn(*next(feed))
                wait_for(learner.device)
                steady.wait()
                while not done.is_set():
                    learner.learn(*next(feed))
                    times[number].append(time.perf_counter())
            return 0.0
        steady.wait()
        time.sleep(ALONE)
        begun = time.perf_counter()
        with beside_others(chosen, stream, learner) if elsewhere else nullcontext():
            for _ in range(4):
                learner.learn(*next(feed))
            wait_for(learner.device)
        say(f"{method}: four steps, of which one is compiled and one captured, {time.perf_counter() - begun:.1f} s")
        return time.perf_counter()

    def watch() -> None:
        with suppress(BrokenBarrierError):
            steady.wait()
            say(f"{EIGHT} runs are steady")
            before = 0
            while not done.wait(5):
                now = sum(map(len, times.values()))
                say(f"the eight made {now - before} steps in 5 s")
                before = now

    jobs = [*((number, "sncl") for number in range(EIGHT)), *((EIGHT + n, name) for n, name in enumerate(methods))]
    Thread(target=watch, daemon=True).start()
    ends: list[float] = []

    def guarded(job: tuple[int, str], report: Any) -> float:
        try:
            end = run(job, report)
        except BaseException:
            steady.abort()
            done.set()
            raise
        if end:
            ends.append(end)
            if len(ends) == len(methods):
                time.sleep(AFTER)
                done.set()
        return end

    with exact_kernels(), on_threads(1):
        run_in_threads(guarded, jobs, len(jobs))
    tell_pauses(times, max(ends))
    say(f"caches: {counted()}")


def tell_pauses(times: dict[int, list[float]], last: float) -> None:
    """How fast the eight were by themselves and beside the others, and how long they stood still."""
    begun = max(each[0] for each in times.values())
    spans = {"by themselves": (begun, begun + ALONE - 0.5), "beside them": (begun + ALONE, last)}
    for name, (start, end) in spans.items():
        within = {number: [each for each in found if start <= each <= end] for number, found in times.items()}
        steps = sum(map(len, within.values()))
        gaps = [max((b - a for a, b in pairwise(found)), default=end - start) for found in within.values()]
        say(f"eight runs {name}: {steps / (end - start):.0f} steps/s, longest pause of one {max(gaps):.2f} s")


PARTS = {
    "1 cold": lambda device: alone(device, warm=False),
    "2 warm": lambda device: alone(device, warm=True),
    "3 beside eight, compiled elsewhere": lambda device: together(device, ("derpp", "er"), elsewhere=True),
    "4 beside eight, compiled here": lambda device: together(device, ("der",), elsewhere=False),
}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    given.add_argument("--seconds", type=float, default=175.0)
    given.add_argument("--part", choices=[name[0] for name in PARTS])
    chosen = given.parse_args()
    if chosen.part is not None:
        next(part for name, part in PARTS.items() if name[0] == chosen.part)(chosen.device)
        return
    with tempfile.TemporaryDirectory(prefix="sncl-first-step-") as folder:
        place = {name: value for name, value in os.environ.items() if name != CHOSEN} | {"XDG_CACHE_HOME": folder}
        for name in PARTS:
            left = chosen.seconds - (time.perf_counter() - BEGUN)
            say(f"--- {name}" + ("" if left > 0 else ": no time left"))
            if left <= 0:
                continue
            command = [sys.executable, __file__, "--part", name[0], "--device", chosen.device]
            try:
                code = subprocess.run(command, env=place, timeout=left, check=False).returncode
                say(f"--- ended ({code})")
            except subprocess.TimeoutExpired:
                say("--- broken off")
        size = sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
        say(f"compiled code: {size / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
