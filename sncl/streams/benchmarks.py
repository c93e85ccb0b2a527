"""The benchmark streams by name, and how each is made from a data set.

Four kinds: ``seq`` cuts the classes into tasks; ``perm`` and ``rot`` show all classes in every task under another
pixel permutation or rotation; ``360`` turns two digits at a time with no boundaries (see :mod:`sncl.streams.general`).
Which permutation or angle a task has depends on the seed and its number only, so a shorter stream is a prefix of a
longer one. A person's own data (:mod:`sncl.streams.user.data`) are cut by classes as well, by ``domain``, or not at all
(``order``: one pass in file order).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.datasets.sources import Progress, Source, data_root, load
from sncl.streams.holdout import hold_out
from sncl.streams.stream import Phase, Scenario, Stream
from sncl.streams.transforms import CropFlip, Identity, Transform, Unit, rotation_map
from sncl.streams.user import data as user_data
from sncl.streams.user.data import UserData
from sncl.tensors.random import generator

Kind = Literal["seq", "perm", "rot", "360", "domain", "order"]
SCENARIOS: dict[Kind, Scenario] = {
    "seq": "class-il",
    "perm": "domain-il",
    "rot": "domain-il",
    "360": "general",
    "domain": "domain-il",
    "order": "general",
}
AUGMENTATIONS = ("none", "crop-flip")
STANDARDISED_PART = 10  # one in so many rows of a stream without tasks
FURTHEST = 10.0  # deviations
FEWEST = 2  # rows of a task


@dataclass(frozen=True)
class Benchmark:
    """What defines a benchmark apart from the seed, and the usual settings to run it with."""

    source: str
    kind: Kind
    transform: Transform
    tasks: int
    classes_per_task: int
    batch_size: int
    epochs: int
    network: Literal["mlp", "resnet18"]
    description: str

    @property
    def once(self) -> bool:
        """Whether the stream is seen once, without boundaries."""
        return SCENARIOS[self.kind] == "general"


CIFAR_TRANSFORM = CropFlip(4, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615))
TINY_TRANSFORM = CropFlip(4, mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821))

STREAMS: dict[str, Benchmark] = {
    "seq-cifar10": Benchmark(
        "cifar10",
        "seq",
        CIFAR_TRANSFORM,
        5,
        2,
        32,
        50,
        "resnet18",
        "CIFAR-10, 5 tasks of 2 classes (class- and task-IL)",
    ),
    "seq-tinyimagenet": Benchmark(
        "tiny-imagenet", "seq", TINY_TRANSFORM, 10, 20, 32, 100, "resnet18", "Tiny ImageNet, 10 tasks of 20 classes"
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


def user_benchmark(found: UserData, split: str | None = None, augment: str = "none") -> Benchmark:
    """The usual way to run a person's own data; by classes two of them a task, the last task with what is left."""
    if augment not in AUGMENTATIONS or (augment != "none" and not found.pixels):
        allowed = ", ".join(AUGMENTATIONS) if found.pixels else "none: there are no images of bytes"
        raise SnclError(f"augment={augment} does not fit {found.name}; allowed is {allowed}")
    kinds: dict[str, Kind] = {"classes": "seq", "domain": "domain", "none": "order"}
    kind = kinds[found.cut]
    together = 2 if found.classes > 2 else 1
    tasks = {"seq": -(-found.classes // together), "domain": found.domains, "order": 1}[kind]
    small = found.network == "mlp"
    benchmark = Benchmark(
        source=found.name,
        kind=kind,
        transform=Unit() if found.pixels else Identity(),
        tasks=tasks,
        classes_per_task=together if kind == "seq" else found.classes,
        batch_size=32,
        epochs=1 if kind == "order" else 5 if small else 10,
        network=found.network,
        description=found.name,
    )
    if augment == "crop-flip":
        benchmark = replace(benchmark, transform=CropFlip(4, mean=(0.0,), std=(1.0,)))
    return benchmark if split is None else _split(found.name, benchmark, split, found.classes)


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
    cut: str | None = None,
    target: str | None = None,
    domain: str | None = None,
    size: int | None = None,
    augment: str = "none",
) -> Stream:
    """The stream of this name from the data under ``root``, with its batches on ``device``.

    ``tasks`` keeps the first tasks only; ``split`` ("20x5", sequential streams) asks for so many tasks of so many
    classes, over the first labels; ``validation`` holds that part of each class out of training and tests on it
    instead of on the test set. A ``source`` that is already loaded is used as it is, so that the streams of many seeds
    share it.

    Your own data are ``folder:PATH``, ``npz:PATH`` or ``table:PATH``, cut by "classes", "domain" or "none"; ``target``
    and ``domain`` name columns of a table, ``size`` is what images are resized to, ``augment`` "none" or "crop-flip".
    """
    asked = user_data.ask(name, cut, target, domain, size)
    if asked is not None:
        return build_user(user_data.read(asked, progress), seed, batch_size, tasks, split, validation, device, augment)
    benchmark = named(name)
    if split is not None:
        benchmark = _split(name, benchmark, split)
    batch_size, tasks = _checked(name, benchmark, batch_size, tasks, validation)
    if source is None:
        source = load(benchmark.source, data_root(root), progress)
    return arrange(name, benchmark, source, seed, batch_size, tasks, validation).to(device)


def build_user(
    found: user_data.Read,
    seed: int = 0,
    batch_size: int | None = None,
    tasks: int | None = None,
    split: str | None = None,
    validation: float = 0.0,
    device: torch.device | str = "cpu",
    augment: str = "none",
) -> Stream:
    """The stream over a person's own data, with numbers standardised (:func:`standardised`)."""
    name = found.user_data.name
    benchmark = user_benchmark(found.user_data, split, augment)
    batch_size, tasks = _checked(name, benchmark, batch_size, tasks, validation)
    stream = arrange(name, benchmark, found.source, seed, batch_size, tasks, validation)
    for number, phase in enumerate(stream.phases, start=1):
        if len(phase.rows) < FEWEST:
            raise SnclError(f"task {number} of {name} has {len(phase.rows)} rows to learn from; {FEWEST} are needed")
    return (stream if found.user_data.pixels else standardised(stream)).to(device)


def named(name: str) -> Benchmark:
    """The benchmark of that name, or an error that lists the names there are."""
    if name not in STREAMS:
        hint = f"; for the images in it say folder:{name}" if Path(name).is_dir() else ""
        known = ", ".join((*STREAMS, *user_data.FORMS))
        raise SnclError(f"there is no stream {name!r}{hint}; the known ones are {known}")
    return STREAMS[name]


def _checked(
    name: str, benchmark: Benchmark, batch_size: int | None, tasks: int | None, validation: float
) -> tuple[int, int]:
    """Batch size and number of tasks, the benchmark's own where nothing is said."""
    batch_size = benchmark.batch_size if batch_size is None else batch_size
    tasks = benchmark.tasks if tasks is None else tasks
    if batch_size < 1:
        raise SnclError(f"The batch size must be a positive whole number, not {batch_size}.")
    if not 0.0 <= validation < 1.0:
        raise SnclError(f"The validation part must be 0 (none) or lie between 0 and 1, not {validation}.")
    if tasks < 1 or (benchmark.kind not in ("perm", "rot") and tasks > benchmark.tasks):
        allowed = "a positive number" if benchmark.kind in ("perm", "rot") else f"1 to {benchmark.tasks}"
        raise SnclError(f"The stream '{name}' was asked for {tasks} tasks, but allowed is {allowed}.")
    return batch_size, tasks


def arrange(
    name: str, benchmark: Benchmark, source: Source, seed: int, batch_size: int, tasks: int, validation: float = 0.0
) -> Stream:
    """A benchmark over a data set that is already loaded, on the host."""
    rows, held = hold_out(source.train_y, validation, seed)
    test_x, test_y = (source.test_x, source.test_y) if held is None else (source.train_x, source.train_y)
    test_rows = torch.arange(len(test_y)) if held is None else held
    classes = benchmark.tasks * benchmark.classes_per_task if benchmark.kind == "seq" else source.classes
    if source.names:  # the last task may have fewer classes than the others
        classes = min(classes, source.classes)
    if classes > source.classes:
        raise SnclError(f"The stream '{name}' wants {classes} classes, but '{source.name}' has {source.classes}.")
    shape = tuple(source.train_x.shape[1:])
    stream = Stream(
        name=name,
        scenario=SCENARIOS[benchmark.kind],
        classes=classes,
        shape=shape,
        transform=benchmark.transform,
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
        names=source.names[:classes],
    )
    if benchmark.kind == "seq":
        return _sequential(stream, benchmark.classes_per_task)
    if benchmark.kind == "360":
        return _turning(stream, rows, test_rows)
    if benchmark.kind == "domain":
        return _by_domain(stream, source, held is not None)
    if benchmark.kind == "order":
        return replace(stream, sizes=tuple(len(batch) for batch in rows.split(batch_size)))
    if benchmark.kind == "perm":
        pixels = math.prod(shape[1:])
        maps = [torch.randperm(pixels, generator=generator(seed, "permutation", task)) for task in range(tasks)]
        return replace(stream, maps=torch.stack(maps))
    height, width = shape[1:]
    return replace(stream, maps=rotation_map(angles(seed, tasks), height, width))


def angles(seed: int, tasks: int) -> Tensor:
    """The angle of each task of a rotated stream: degrees, uniform in [0, 180), float64 [tasks]."""
    drawn = [torch.rand((), dtype=torch.float64, generator=generator(seed, "angle", task)) for task in range(tasks)]
    return torch.stack(drawn) * 180.0


def standardised(stream: Stream) -> Stream:
    """Numbers with mean 0 and deviation 1 in each column, or each channel of an image, as float32.

    Later tasks are not looked at: mean and deviation are those of the rows the first task learns from, or, of a stream
    without tasks, of its first tenth. What lies further than 10 deviations away is moved there; columns of nothing but
    0 and 1 stay as they are.
    """
    first = stream.phases[0].rows
    if stream.sizes is not None:
        first = first[: max(len(first) // STANDARDISED_PART, 2)]
    axes = [0, *range(2, stream.x.dim())]
    x = stream.x[first].double()
    mean, deviation = x.mean(axes, keepdim=True), x.std(axes, keepdim=True, correction=0)
    deviation[deviation == 0] = 1
    if stream.x.dim() == 2:
        truths = ((stream.x == 0) | (stream.x == 1)).all(0, keepdim=True)
        mean, deviation = mean.masked_fill(truths, 0), deviation.masked_fill(truths, 1)

    def scaled(values: Tensor) -> Tensor:
        return ((values.double() - mean) / deviation).clamp(-FURTHEST, FURTHEST).float()

    test_x = scaled(stream.test_x)
    return replace(stream, x=scaled(stream.x), test_x=test_x)


def _split(name: str, benchmark: Benchmark, split: str, classes: int | None = None) -> Benchmark:
    """The benchmark with so many tasks of so many classes; of ``classes``, where the last task may have fewer."""
    parts = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", split)
    if benchmark.kind != "seq" or parts is None:
        raise SnclError(
            f"The split '{split}' does not fit the stream '{name}': a sequential stream takes TASKSxCLASSES, like 5x2."
        )
    tasks, together = int(parts[1]), int(parts[2])
    if classes is not None and (tasks - 1) * together >= classes:
        raise SnclError(
            f"the split {split} wants {tasks * together} classes, but {name} has {classes}: for {together} classes a "
            f"task say {-(-classes // together)}x{together}"
        )
    return replace(benchmark, tasks=tasks, classes_per_task=together)


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


def _by_domain(stream: Stream, source: Source, validated: bool) -> Stream:
    """Task t has the rows of domain t, with all classes that occur there."""
    assert source.train_domain is not None and source.test_domain is not None
    tested = source.train_domain if validated else source.test_domain
    phases, tests = (
        tuple(_in_domain(rows[domain[rows] == task], 0) for task, (rows, _) in enumerate(every_row))
        for domain, every_row in ((source.train_domain, stream.phases), (tested, stream.test_phases))
    )
    for name, test in zip(source.domain_names, tests, strict=False):
        if not len(test.rows):  # a validation part is held out by class
            raise SnclError(f"the domain {name!r} of {stream.name} has no row to test on; hold out a larger part")
    return replace(stream, phases=phases, test_phases=tests, task_names=source.domain_names[: stream.tasks])


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
