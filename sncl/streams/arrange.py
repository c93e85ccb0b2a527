"""The tasks of a benchmark over a data set: which samples each trains and tests on, and how their pixels are moved.

Which permutation or angle a task has depends on the seed and its number only, so a shorter stream is a prefix of a
longer one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.benchmarks import SCENARIOS, Benchmark
from sncl.streams.datasets.sources import Dataset
from sncl.streams.holdout import hold_out
from sncl.streams.stream import Phase, Stream
from sncl.streams.transforms import rotation_map
from sncl.tensors.random import generator


def arrange(
    name: str, benchmark: Benchmark, dataset: Dataset, seed: int, batch_size: int, tasks: int, validation: float = 0.0
) -> Stream:
    """A benchmark over a data set that is already loaded, on the host."""
    stream = _repeated(name, benchmark, dataset, seed, batch_size, tasks, validation)
    match benchmark.kind:
        case "seq":
            return _by_class(stream, benchmark.classes_per_task)
        case "domain":
            return _by_domain(stream, dataset, validated=validation > 0)
        case "perm":
            return replace(stream, maps=permutations(seed, tasks, math.prod(stream.shape[1:])))
        case "rot":
            height, width = stream.shape[1:]
            return replace(stream, maps=rotation_map(angles(seed, tasks), height, width))
        case "360":
            return _rotating(stream)
        case "order":
            return replace(stream, sizes=tuple(len(batch) for batch in stream.phases[0].rows.split(batch_size)))


def permutations(seed: int, tasks: int, pixels: int) -> Tensor:
    """The permutation of each task of a permuted stream: int64 [tasks, pixels]."""
    drawn = [torch.randperm(pixels, generator=generator(seed, "permutation", task)) for task in range(tasks)]
    return torch.stack(drawn)


def angles(seed: int, tasks: int) -> Tensor:
    """The angle of each task of a rotated stream: degrees, uniform in [0, 180), float64 [tasks]."""
    drawn = [torch.rand((), dtype=torch.float64, generator=generator(seed, "angle", task)) for task in range(tasks)]
    return torch.stack(drawn) * 180.0


def _repeated(
    name: str, benchmark: Benchmark, dataset: Dataset, seed: int, batch_size: int, tasks: int, validation: float
) -> Stream:
    """Every task with all samples and all classes, in a domain of its own."""
    rows, held_out = hold_out(dataset.train_y, validation, seed)
    test_x, test_y = (dataset.test_x, dataset.test_y) if held_out is None else (dataset.train_x, dataset.train_y)
    test_rows = torch.arange(len(test_y)) if held_out is None else held_out
    classes = _classes(name, benchmark, dataset)
    return Stream(
        name=name,
        scenario=SCENARIOS[benchmark.kind],
        classes=classes,
        shape=tuple(dataset.train_x.shape[1:]),
        transform=benchmark.transform,
        source_fingerprint=dataset.fingerprint(),
        seed=seed,
        batch_size=batch_size,
        x=dataset.train_x,
        y=dataset.train_y,
        test_x=test_x,
        test_y=test_y,
        phases=tuple(_in_domain(rows, task) for task in range(tasks)),
        test_phases=tuple(_in_domain(test_rows, task) for task in range(tasks)),
        groups=torch.ones(tasks, classes, dtype=torch.bool),
        mapped=dataset.mapped,
        names=dataset.names[:classes],
    )


def _classes(name: str, benchmark: Benchmark, dataset: Dataset) -> int:
    if benchmark.kind != "seq":
        return dataset.classes
    classes = benchmark.tasks * benchmark.classes_per_task
    if dataset.names:  # user data: the last task may have fewer classes than the others
        return min(classes, dataset.classes)
    if classes > dataset.classes:
        raise SnclError(f"The stream '{name}' wants {classes} classes, but '{dataset.name}' has {dataset.classes}.")
    return classes


def _in_domain(rows: Tensor, domain: int) -> Phase:
    return Phase(rows, torch.tensor(domain).expand(len(rows)))  # one number, however many samples


def _by_class(stream: Stream, classes_per_task: int) -> Stream:
    """Task t has the labels [t * C, (t + 1) * C), in their natural order."""
    phases, tests = (
        tuple(_in_domain(rows[y[rows] // classes_per_task == task], 0) for task, (rows, _) in enumerate(every_row))
        for y, every_row in ((stream.y, stream.phases), (stream.test_y, stream.test_phases))
    )
    task_of_class = torch.arange(stream.classes) // classes_per_task
    groups = task_of_class == torch.arange(stream.tasks)[:, None]
    return replace(stream, phases=phases, test_phases=tests, groups=groups)


def _by_domain(stream: Stream, dataset: Dataset, validated: bool) -> Stream:
    """Task t has the samples of domain t, with all classes that occur there."""
    assert dataset.train_domain is not None and dataset.test_domain is not None
    tested = dataset.train_domain if validated else dataset.test_domain
    phases, tests = (
        tuple(_in_domain(rows[domain[rows] == task], 0) for task, (rows, _) in enumerate(every_row))
        for domain, every_row in ((dataset.train_domain, stream.phases), (tested, stream.test_phases))
    )
    for name, test in zip(dataset.domain_names, tests, strict=False):
        if not len(test.rows):  # samples are held out by class, not by domain
            raise SnclError(f"the domain {name!r} of {stream.name} has no row to test on; use a larger `validation`")
    return replace(stream, phases=phases, test_phases=tests, task_names=dataset.domain_names[: stream.tasks])


def _rotating(stream: Stream) -> Stream:
    """Training and test images rotated up front, in the order they are shown."""
    plan = general.train_plan(stream.y, stream.phases[0].rows, stream.batch_size, stream.seed)
    test_plan = general.test_plan(stream.test_y, stream.test_phases[0].rows)
    return replace(
        stream,
        x=general.render(stream.x, plan),
        y=stream.y[plan.rows],
        test_x=general.render(stream.test_x, test_plan),
        test_y=stream.test_y[test_plan.rows],
        phases=(_in_domain(torch.arange(len(plan.rows)), 0),),
        test_phases=(_in_domain(torch.arange(len(test_plan.rows)), 0),),
        groups=(torch.arange(stream.classes) < general.DIGITS)[None],
        sizes=plan.sizes,
    )
