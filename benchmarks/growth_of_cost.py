"""How the time and memory of a step grow: over classes, features, memory size, width and tasks, on one core.

    OMP_NUM_THREADS=1 python benchmarks/growth_of_cost.py --write

Each point is a learner of its own (ER, DER++, SNCL with their usual settings; batches of 32 and as many replayed) on an
MLP with two hidden layers, in the middle of a stream: its memory is full and it has seen ten times as many samples.
Beside each, in turns, the passes of the bare network on as many samples. Times are those of the processor, so that what
else the machine does counts little. ``--write`` puts the numbers into
results/cost.jsonl, the figures into results/figures and the table into results/cost.md.
"""

import argparse
import ctypes
import gc
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from pages import ROOT, rewrite, table
from torch.nn import functional as F

from sncl import Learner
from sncl.analysis.pictures import logarithmic, panels
from sncl.bench.subjects import fill
from sncl.networks.mlp import dense

METHODS = {"er": "ER", "derpp": "DER++", "sncl": "SNCL"}
BATCH = 32
USUAL = {"classes": 10, "features": 100, "memory": 1000, "width": 100, "tasks": 1}
AXES = {
    "classes": [10, 30, 100, 300, 1000, 3000, 10_000],
    "features": [10, 30, 100, 300, 1000, 3000, 10_000],
    "memory": [200, 1000, 5000, 20_000, 60_000, 200_000, 1_000_000],
    "width": [100, 200, 400, 1000, 2000, 4000],
    "tasks": [5, 20, 50, 200, 1000],
}
QUICK = 3  # points of each axis with --quick: the first ones
SEEN = 10  # times the memory's samples
BEFORE = 8  # steps, after which a step like them has its usual time
TURNS, SECONDS = 7, 0.04  # of which the median counts; at least one step
FEW = 4  # steps in each earlier task


class Point(NamedTuple):
    """What was measured of one method at one place of an axis; ``mb`` is resident memory beyond what was there."""

    axis: str
    value: int
    method: str
    ms: float
    bare_ms: float
    mb: float


def measure(axis: str, value: int, method: str) -> Point:
    """A learner in the middle of its stream, timed in turns with the bare network."""
    size = USUAL | {axis: value}
    release()
    before = resident("VmRSS")
    learner, step = subject(size, method)
    for _ in range(BEFORE):
        step()
    bare = passes(size, BATCH * (1 + learner.method.draws))
    steps, bare_steps = (max(1, int(SECONDS / seconds(each, 1))) for each in (step, bare))
    times, bare_times = [], []
    for _ in range(TURNS):
        times.append(seconds(step, steps))
        bare_times.append(seconds(bare, bare_steps))
    return Point(axis, value, method, 1000 * median(times), 1000 * median(bare_times), resident("VmHWM") - before)


def subject(size: dict[str, int], method: str) -> tuple[Learner, Callable[[], None]]:
    """A learner that has had all its tasks but the last, and a function that makes its next step."""
    torch.manual_seed(0)
    net = dense(size["features"], size["classes"], (size["width"], size["width"]))
    learner = Learner(net, method, memory=size["memory"], replay=BATCH, lr=0.001, device="cpu")
    x = torch.randn(16, BATCH, size["features"])
    y = torch.randint(size["classes"], (16, BATCH))

    def step() -> None:
        learner.learn(x[learner.steps % 16], y[learner.steps % 16])

    for _ in range(size["tasks"] - 1):
        for _ in range(FEW):
            step()
        learner.boundary()
    step()
    fill(learner.memory, seen=SEEN * size["memory"])
    return learner, step


def passes(size: dict[str, int], samples: int) -> Callable[[], None]:
    """The bare network's passes on so many samples."""
    net = dense(size["features"], size["classes"], (size["width"], size["width"]))
    x, y = torch.randn(samples, size["features"]), torch.randint(size["classes"], (samples,))

    def run() -> None:
        F.cross_entropy(net(x), y).backward()
        for parameter in net.parameters():
            parameter.grad = None

    return run


def seconds(step: Callable[[], None], times: int) -> float:
    """Of the processor, for one of so many steps."""
    begun = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - begun) / times


def release() -> None:
    """Give memory back that nobody uses, and let the peak begin at what is resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def resident(which: str) -> float:
    """Resident memory of this process in MB, now (VmRSS) or at most (VmHWM); Linux tells it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(which)) / 1024


# --- what it says --------------------------------------------------------------------------------------------------


def steepest(places: list[int], values: list[float]) -> float:
    """The exponent by which a curve grows where it grows most: 1 is linear, 0 flat."""
    pairs = list(zip(places, values, strict=True))
    return max(math.log(b / a) / math.log(q / p) for (p, a), (q, b) in zip(pairs[:-2], pairs[2:], strict=True))


def weights(width: int) -> int:
    """Of the network of that width, all others as usual."""
    return sum(each.numel() for each in dense(USUAL["features"], USUAL["classes"], (width, width)).parameters())


def scale(axis: str, places: list[int]) -> list[int]:
    """What a step is measured against: places of the axis, for the width how many weights there are."""
    return [weights(place) for place in places] if axis == "width" else places


def curve(points: list[Point], axis: str, method: str, what: str) -> tuple[list[int], list[float]]:
    chosen = [point for point in points if (point.axis, point.method) == (axis, method)]
    return [point.value for point in chosen], [
        max(getattr(point, what), 0.1 if what == "mb" else 0) for point in chosen
    ]


def summary(points: list[Point]) -> str:
    """A line for each axis and method: the ends of its curves, and how steep they are."""
    headings = [
        "over",
        "from – to",
        "method",
        "step, ms",
        "× bare passes",
        "steepest",
        "bare, steepest",
        "MB",
        "MB, steepest",
    ]
    rows = []
    for axis in dict.fromkeys(point.axis for point in points):
        for method, title in METHODS.items():
            places, times = curve(points, axis, method, "ms")
            _, bare = curve(points, axis, method, "bare_ms")
            _, mb = curve(points, axis, method, "mb")
            ends = " – ".join(f"{places[end]:,}" for end in (0, -1))
            spans = [
                f"{values[0]:,.2f} – {values[-1]:,.2f}"
                for values in (times, [a / b for a, b in zip(times, bare, strict=True)])
            ]
            slopes = [f"{steepest(scale(axis, places), values):.2f}" for values in (times, bare, mb)]
            rows.append(
                [
                    "width (steepest: over weights)" if axis == "width" else axis,
                    ends,
                    title,
                    *spans,
                    *slopes[:2],
                    f"{mb[0]:,.0f} – {mb[-1]:,.0f}",
                    slopes[2],
                ]
            )
    return table(headings, rows, 3)


def draw(points: list[Point], axis: str, path: Path) -> None:
    """Time and memory over one axis, both logarithmic; dashed: linear growth from ER's first point."""
    with panels(path, 1, 2, 5.2, 2.4) as axes:
        for panel, what, label in zip(axes[0], ("ms", "mb"), ("time of a step, ms", "memory, MB"), strict=True):
            for number, (method, title) in enumerate(METHODS.items()):
                panel.plot(*curve(points, axis, method, what), marker="o", color=f"C{number}", linewidth=1, label=title)
            places, values = curve(points, axis, "er", what)
            sizes = scale(axis, places)
            if what == "ms":
                panel.plot(
                    *curve(points, axis, "derpp", "bare_ms"), color="0.6", linewidth=1, label="DER++'s bare passes"
                )
            ceiling = panel.get_ylim()[1]
            panel.plot(
                places,
                [values[0] * size / sizes[0] for size in sizes],
                "--",
                color="0.4",
                linewidth=0.7,
                label="linear in the weights" if axis == "width" else "linear",
            )
            panel.set(xscale="log", xlabel={"memory": "samples in memory"}.get(axis, axis), ylabel=label)
            logarithmic(panel)
            panel.set_ylim(top=2 * ceiling)
        axes[0][0].figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=5)


def conditions() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    where = f"Python {platform.python_version()}, torch {torch.__version__}, one thread, {os.cpu_count()} shared cores"
    return f"Commit {commit.stdout.strip() or 'unknown'}; {where}. `python benchmarks/growth_of_cost.py --write`"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--axes", default=",".join(AXES), help=f"some of {', '.join(AXES)}")
    asked.add_argument("--quick", action="store_true", help="only the first points of each")
    asked.add_argument("--json", action="store_true", help="print lines of JSON instead of a table")
    asked.add_argument("--write", action="store_true", help="also write numbers, figures and table into results/")
    given = asked.parse_args()
    if unknown := [axis for axis in given.axes.split(",") if axis not in AXES]:
        asked.error(f"the axes are {', '.join(AXES)}, not {unknown[0]!r}")
    torch.set_num_threads(1)
    for method in METHODS:  # all code is loaded before memory is measured
        measure("classes", 10, method)
    points = []
    for axis in given.axes.split(","):
        for value in AXES[axis][: QUICK if given.quick else None]:
            for method in METHODS:
                points.append(measure(axis, value, method))
                print(points[-1], file=sys.stderr, flush=True)
    lines = "".join(json.dumps(point._asdict()) + "\n" for point in points)
    text = f"{conditions()}\n\n{summary(points)}"
    if given.write:
        (ROOT / "results/cost.jsonl").write_text(lines)
        for axis in dict.fromkeys(point.axis for point in points):
            draw(points, axis, ROOT / f"results/figures/cost-{axis}.png")
        rewrite("results/cost.md", "cost", text)
    print(lines if given.json else text)


if __name__ == "__main__":
    main()
