"""Streams by name: the data set is read, and arranged into the tasks of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from sncl.errors import SnclError
from sncl.streams.arrange import arrange
from sncl.streams.benchmarks import Benchmark, augmented, named, resplit, stream_name, user_benchmark
from sncl.streams.cache import Progress
from sncl.streams.datasets.sources import Dataset, data_root, load
from sncl.streams.encoding import encode_in_order
from sncl.streams.preprocessing import preprocessing_of
from sncl.streams.standardisation import brightness_transform, first_samples, standardise
from sncl.streams.stream import Stream
from sncl.streams.transforms import CropFlip, Transform, Unit
from sncl.streams.user.data import Loaded, read
from sncl.streams.user.spec import parse_spec

FEWEST_SAMPLES = 2  # samples of a task


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
    dataset: Dataset | None = None,
    cut: str | None = None,
    target: str | None = None,
    domain: str | None = None,
    size: int | None = None,
    augment: str | None = None,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Stream:
    """The stream of this name from the data under ``root``, with its batches on ``device``.

    ``tasks`` keeps the first tasks only; ``split`` ("20x5", sequential streams) gives the number of tasks and of
    classes in each, over the first labels; ``validation`` holds that fraction of each class out of training and tests
    on it instead of on the test set. A ``dataset`` that is already loaded is used as it is, so that the streams of many
    seeds share it.

    User data are ``folder:PATH``, ``npz:PATH`` or ``table:PATH``, cut by "classes", "domain" or "none"; ``target`` and
    ``domain`` name columns of a table, ``size`` is what images are resized to. ``augment`` is "none", "crop-flip" or
    "strong", of a benchmark of images one of the last two. ``ignore``, ``categories`` and ``numbers`` name columns of a
    table that are left out or are of that kind.
    """
    spec = parse_spec(name, cut, target, domain, size, ignore, categories, numbers)
    if spec is not None:
        return build_user(read(spec, progress), seed, batch_size, tasks, split, validation, device, augment or "none")
    name = stream_name(name)
    benchmark = named(name) if augment is None else augmented(name, named(name), augment)
    if split is not None:
        benchmark = resplit(name, benchmark, split)
    batch_size, tasks = checked(name, benchmark, batch_size, tasks, validation)
    if dataset is None:
        dataset = load(benchmark.dataset, data_root(root), progress)
    if isinstance(benchmark.transform, Unit):  # the files may hold other images of the same form
        benchmark = replace(benchmark, transform=brightness_transform(dataset.train_x))
    stream = arrange(name, benchmark, dataset, seed, batch_size, tasks, validation)
    return replace(stream, preprocessing=preprocessing_of(stream, "benchmark")).to(device)


def build_user(
    data: Loaded,
    seed: int = 0,
    batch_size: int | None = None,
    tasks: int | None = None,
    split: str | None = None,
    validation: float = 0.0,
    device: torch.device | str = "cpu",
    augment: str = "none",
    standardised: bool = True,
) -> Stream:
    """The stream over the user's data, with numbers standardised and images of an MLP no brighter than MNIST's.

    Both by the first samples only, see :mod:`sncl.streams.standardisation`. Without ``standardised``, numbers stay as
    they were read.
    """
    name = data.user_data.name
    benchmark = user_benchmark(data.user_data, split, augment)
    batch_size, tasks = checked(name, benchmark, batch_size, tasks, validation)
    stream = arrange(name, benchmark, data.dataset, seed, batch_size, tasks, validation)
    for number, phase in enumerate(stream.phases, start=1):
        if (samples := len(phase.rows)) < FEWEST_SAMPLES:
            raise SnclError(f"task {number} of {name} has {samples} rows to learn from; {FEWEST_SAMPLES} are needed")
    if data.dataset.table is not None:
        stream = encode_in_order(stream, data.dataset.table)
    scale = None
    if not data.user_data.pixels and standardised:
        stream, scale = standardise(stream)
    elif data.user_data.pixels and benchmark.network == "mlp":
        stream = replace(stream, transform=normalised(stream))
    user = data.user_data
    preprocessing = preprocessing_of(
        stream, user.form, scale, stream.encoder, user.target, user.domain, resize=user.size is not None
    )
    return replace(stream, preprocessing=preprocessing).to(device)


def normalised(stream: Stream) -> Transform:
    """The transform of a stream of images, with the brightness its first samples ask for."""
    found = brightness_transform(stream.x[first_samples(stream)])
    if isinstance(stream.transform, CropFlip):
        return replace(stream.transform, mean=(found.mean,), std=(found.std,))
    return found


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
