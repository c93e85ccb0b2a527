"""The benchmark streams by name, and how each is made from a data set.

Four kinds: ``seq`` cuts the classes into tasks; ``perm`` and ``rot`` show all classes in every task under another
pixel permutation or rotation; ``360`` turns two digits at a time with no boundaries (see :mod:`sncl.streams.general`).
Which permutation or angle a task has depends on the seed and its number only, so a shorter stream is a prefix of a
longer one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.augment import CropFlip, Unit, View, rotation_map
from sncl.streams.sources import Progress, Source, data_root, load
from sncl.streams.stream import Phase, Scenario, Stream
from sncl.tensors.random import generator

Kind = Literal["seq", "perm", "rot", "360"]


@dataclass(frozen=True)
class Benchmark:
    """What defines a benchmark apart from the seed, and the usual settings to run it with."""

    source: str
    kind: Kind
    view: View
    tasks: int
    classes_per_task: int
    batch_size: int
    epochs: int
    network: Literal["mlp", "resnet18"]
    description: str


CIFAR_VIEW = CropFlip(4, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615))
TINY_VIEW = CropFlip(4, mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821))

STREAMS: dict[str, Benchmark] = {
    "seq-cifar10": Benchmark(
        "cifar10", "seq", CIFAR_VIEW, 5, 2, 32, 50, "resnet18", "CIFAR-10, 5 tasks of 2 classes (class- and task-IL)"
    ),
    "seq-tinyimagenet": Benchmark(
        "tiny-imagenet", "seq", TINY_VIEW, 10, 20, 32, 100, "resnet18", "Tiny ImageNet, 10 tasks of 20 classes"
    ),
    "perm-mnist": Benchmark(
        "mnist", "perm", Unit(), 20, 10, 128, 1, "mlp", "MNIST, 20 tasks, each under its own permutation of the pixels"
    ),
    "rot-mnist": Benchmark(
        "mnist", "rot", Unit(), 20, 10, 128, 1, "mlp", "MNIST, 20 tasks, each turned by its own angle in [0, 180)"
    ),
    "mnist-360": Benchmark(
        "mnist", "360", Unit(), 1, 9, 16, 1, "mlp", "MNIST 0..8, two digits at a time, slowly turning, no boundaries"
    ),
    "seq-mnist": Benchmark("mnist", "seq", Unit(), 5, 2, 10, 1, "mlp", "MNIST, 5 tasks of 2 classes"),
    "seq-digits": Benchmark("digits", "seq", Unit(), 5, 2, 16, 5, "mlp", "8 x 8 digits, 5 tasks of 2 classes"),
    "perm-digits": Benchmark(
        "digits", "perm", Unit(), 10, 10, 16, 3, "mlp", "8 x 8 digits, 10 tasks, each under its own permutation"
    ),
    "rot-digits": Benchmark(
        "digits", "rot", Unit(), 10, 10, 16, 3, "mlp", "8 x 8 digits, 10 tasks, each turned by its own angle"
    ),
    "digits-360": Benchmark(
        "digits", "360", Unit(), 1, 9, 4, 1, "mlp", "8 x 8 digits 0..8, two at a time, slowly turning, no boundaries"
    ),
}


def build(
    name: str,
    root: Path | None = None,
    *,
    seed: int = 0,
    batch_size: int | None = None,
    tasks: int | None = None,
    split: str | None = None,
    validation: float = 0.0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    source: Source | None = None,
) -> Stream:
    """The stream of this name from the data under ``root``, with its batches on ``device``.

    ``tasks`` keeps the first tasks only; ``split`` ("20x5", sequential streams) asks for so many tasks of so many
    classes, over the first labels; ``validation`` holds that part of each class out of training and tests on it
    instead of on the test set. A ``source`` that is already loaded is used as it is, so that the streams of many seeds
    share it.
    """
    if name not in STREAMS:
        raise SnclError(f"There is no stream '{name}'; the known ones are {', '.join(STREAMS)}.")
    benchmark = STREAMS[name]
    if split is not None:
        benchmark = _split(name, benchmark, split)
    batch_size = benchmark.batch_size if batch_size is None else batch_size
    tasks = benchmark.tasks if tasks is None else tasks
    if batch_size < 1:
        raise SnclError(f"The batch size must be a positive whole number, not {batch_size}.")
    if not 0.0 <= validation < 1.0:
        raise SnclError(f"The validation part must be 0 (none) or lie between 0 and 1, not {validation}.")
    if tasks < 1 or (benchmark.kind in ("seq", "360") and tasks > benchmark.tasks):
        allowed = "a positive number" if benchmark.kind in ("perm", "rot") else f"1 to {benchmark.tasks}"
        raise SnclError(f"The stream '{name}' was asked for {tasks} tasks, but allowed is {allowed}.")
    if source is None:
        source = load(benchmark.source, data_root(root), progress)
    return arrange(name, benchmark, source, seed, batch_size, tasks, validation).to(device)


def arrange(
    name: str, benchmark: Benchmark, source: Source, seed: int, batch_size: int, tasks: int, validation: float = 0.0
) -> Stream:
    """A benchmark over a data set that is already loaded, on the host."""
    rows, held = hold_out(source.train_y, validation, seed)
    test_x, test_y = (source.test_x, source.test_y) if held is None else (source.train_x, source.train_y)
    test_rows = torch.arange(len(test_y)) if held is None else held
    classes = benchmark.tasks * benchmark.classes_per_task if benchmark.kind == "seq" else source.classes
    if classes > source.classes:
        raise SnclError(f"The stream '{name}' wants {classes} classes, but '{source.name}' has {source.classes}.")
    scenarios: dict[Kind, Scenario] = {"seq": "class-il", "perm": "domain-il", "rot": "domain-il", "360": "general"}
    height, width = source.train_x.shape[2:]
    stream = Stream(
        name=name,
        scenario=scenarios[benchmark.kind],
        classes=classes,
        shape=(source.train_x.shape[1], height, width),
        view=benchmark.view,
        source_fingerprint=source.fingerprint(),
        seed=seed,
        batch_size=batch_size,
        x=source.train_x,
        y=source.train_y,
        test_x=test_x,
        test_y=test_y,
        phases=tuple(_in_domain(rows, task) for task in range(tasks)),
        test_phases=tuple(_in_domain(test_rows, task) for task in range(tasks)),
        groups=torch.ones(tasks, classes, dtype=torch.bool),
        mapped=source.mapped,
    )
    if benchmark.kind == "seq":
        return _sequential(stream, benchmark.classes_per_task)
    if benchmark.kind == "360":
        return _turning(stream, rows, test_rows)
    if benchmark.kind == "perm":
        pixels = height * width
        maps = [torch.randperm(pixels, generator=generator(seed, "permutation", task)) for task in range(tasks)]
        return replace(stream, maps=torch.stack(maps))
    return replace(stream, maps=rotation_map(angles(seed, tasks), height, width))


def angles(seed: int, tasks: int) -> Tensor:
    """The angle of each task of a rotated stream: degrees, uniform in [0, 180), float64 [tasks]."""
    drawn = [torch.rand((), dtype=torch.float64, generator=generator(seed, "angle", task)) for task in range(tasks)]
    return torch.stack(drawn) * 180.0


def hold_out(y: Tensor, part: float, seed: int) -> tuple[Tensor, Tensor | None]:
    """Rows to learn from and rows held out, ``round(part * n)`` of each class with n rows, both in file order."""
    if part == 0.0:
        return torch.arange(len(y)), None
    shuffled = torch.randperm(len(y), generator=generator(seed, "validation"))
    by_class = shuffled[torch.sort(y[shuffled], stable=True).indices]  # class by class, shuffled within each
    counts = torch.bincount(y)
    held_of = torch.tensor([round(part * count) for count in counts.tolist()])
    if ((held_of == 0) | (held_of == counts)).logical_and(counts > 0).any():
        raise SnclError(f"A validation part of {part} leaves a class with no row to learn from or none to test on.")
    rank = torch.arange(len(y)) - (counts.cumsum(0) - counts)[y[by_class]]  # place within its class
    held = torch.zeros(len(y), dtype=torch.bool)
    held[by_class[rank < held_of[y[by_class]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def _split(name: str, benchmark: Benchmark, split: str) -> Benchmark:
    parts = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", split)
    if benchmark.kind != "seq" or parts is None:
        raise SnclError(
            f"The split '{split}' does not fit the stream '{name}': a sequential stream takes TASKSxCLASSES, like 5x2."
        )
    return replace(benchmark, tasks=int(parts[1]), classes_per_task=int(parts[2]))


def _in_domain(rows: Tensor, domain: int) -> Phase:
    return Phase(rows, torch.full_like(rows, domain))


def _sequential(stream: Stream, classes_per_task: int) -> Stream:
    """Task t has the labels [t * C, (t + 1) * C), in their natural order."""
    phases, tests = (
        tuple(_in_domain(rows[y[rows] // classes_per_task == task], 0) for task, (rows, _) in enumerate(every_row))
        for y, every_row in ((stream.y, stream.phases), (stream.test_y, stream.test_phases))
    )
    task_of_class = torch.arange(stream.classes) // classes_per_task
    groups = task_of_class == torch.arange(stream.tasks)[:, None]
    return replace(stream, phases=phases, test_phases=tests, groups=groups)


def _turning(stream: Stream, rows: Tensor, test_rows: Tensor) -> Stream:
    """Train and test images turned up front, in the order they are shown."""
    shown = general.shown(stream.y, rows, stream.batch_size, stream.seed)
    tested = general.shown_once(stream.test_y, test_rows)
    return replace(
        stream,
        x=general.render(stream.x, shown),
        y=stream.y[shown.rows],
        test_x=general.render(stream.test_x, tested),
        test_y=stream.test_y[tested.rows],
        phases=(_in_domain(torch.arange(len(shown.rows)), 0),),
        test_phases=(_in_domain(torch.arange(len(tested.rows)), 0),),
        groups=(torch.arange(stream.classes) < general.DIGITS)[None],
        sizes=shown.sizes,
    )
