"""Streams by name: a data set is read and arranged into the tasks of a benchmark.

Which permutation or angle a task has depends on the seed and its number only, so a shorter stream is a prefix of a
longer one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.benchmarks import SCENARIOS, Benchmark, named, resplit, user_benchmark
from sncl.streams.cache import Progress
from sncl.streams.datasets.sources import Source, data_root, load
from sncl.streams.holdout import hold_out
from sncl.streams.standardisation import standardise
from sncl.streams.stream import Phase, Stream
from sncl.streams.transforms import rotation_map
from sncl.streams.user.data import Loaded, read
from sncl.streams.user.spec import parse_spec
from sncl.tensors.random import generator

FEWEST = 2  # samples of a task


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

    User data are ``folder:PATH``, ``npz:PATH`` or ``table:PATH``, cut by "classes", "domain" or "none"; ``target`` and
    ``domain`` name columns of a table, ``size`` is what images are resized to, ``augment`` "none" or "crop-flip".
    """
    spec = parse_spec(name, cut, target, domain, size)
    if spec is not None:
        return build_user(read(spec, progress), seed, batch_size, tasks, split, validation, device, augment)
    benchmark = named(name)
    if split is not None:
        benchmark = resplit(name, benchmark, split)
    batch_size, tasks = checked(name, benchmark, batch_size, tasks, validation)
    if source is None:
        source = load(benchmark.source, data_root(root), progress)
    return arrange(name, benchmark, source, seed, batch_size, tasks, validation).to(device)


def build_user(
    data: Loaded,
    seed: int = 0,
    batch_size: int | None = None,
    tasks: int | None = None,
    split: str | None = None,
    validation: float = 0.0,
    device: torch.device | str = "cpu",
    augment: str = "none",
) -> Stream:
    """The stream over the user's data, with numbers standardised (:func:`sncl.streams.standardisation.standardise`)."""
    name = data.user_data.name
    benchmark = user_benchmark(data.user_data, split, augment)
    batch_size, tasks = checked(name, benchmark, batch_size, tasks, validation)
    stream = arrange(name, benchmark, data.source, seed, batch_size, tasks, validation)
    for number, phase in enumerate(stream.phases, start=1):
        if len(phase.rows) < FEWEST:
            raise SnclError(f"task {number} of {name} has {len(phase.rows)} rows to learn from; {FEWEST} are needed")
    return (stream if data.user_data.pixels else standardise(stream)).to(device)


def checked(
    name: str, benchmark: Benchmark, batch_size: int | None, tasks: int | None, validation: float
) -> tuple[int, int]:
    """Batch size and number of tasks, those of the benchmark where none are given."""
    batch_size = benchmark.batch_size if batch_size is None else batch_size
    tasks = benchmark.tasks if tasks is None else tasks
    if batch_size < 1:
        raise SnclError(f"`batch_size` is at least 1 sample, not {batch_size}")
    if not 0.0 <= validation < 1.0:
        raise SnclError(f"`validation` is 0 (none) or lies between 0 and 1, not {validation}")
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
