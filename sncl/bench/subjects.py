"""What is measured: a learner in the middle of a stream of random images of a benchmark's shapes, or of user data."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sncl.memory.memory import Memory
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import Experiment
from sncl.streams.arrange import arrange
from sncl.streams.benchmarks import STREAMS
from sncl.streams.datasets.sources import Dataset
from sncl.streams.stream import Stream
from sncl.tensors.random import generator
from sncl.training.learner import Learner

SHAPES = {  # stream -> shape of an image, training samples, test samples, classes
    "perm-mnist": ((1, 28, 28), 60_000, 10_000, 10),
    "seq-cifar10": ((3, 32, 32), 50_000, 10_000, 10),
    "seq-tinyimagenet": ((3, 64, 64), 100_000, 10_000, 200),
}


def subject(experiment: Experiment) -> tuple[Learner, Stream, Iterator[tuple[Tensor, Tensor]]]:
    """A learner in the middle of a stream of random images, the stream and its batches without end."""
    stream = random_stream(experiment) if experiment.user_data is None else make_stream(experiment, None)
    learner = make_learner(experiment, stream)
    batches = endless(stream)
    learner.learn(*next(batches))
    samples = experiment.epochs * sum(len(phase.rows) for phase in stream.phases)
    fill(learner.memory, seen=samples // 2)
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
    """Make a memory that holds a few samples look as in mid-stream: full, and admitting as seldom."""
    assert memory is not None  # all that is measured here replays
    few = len(memory)
    memory.reserve(memory.capacity)
    for stored in memory.fields.values():
        stored.copy_(stored[torch.arange(memory.capacity, device=stored.device) % few])
    memory.count = memory.count._replace(seen=seen, in_task=seen)


def endless(stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the first task that are as large as the largest, epoch after epoch."""
    epoch, usual = 0, min(stream.batch_size, len(stream.phases[0].rows))
    while True:
        for positions in stream.positions(0, epoch):
            if len(positions) == usual:
                yield stream.batch(0, positions)
        epoch += 1


def samples_of_a_step(learner: Learner, stream: Stream) -> int:
    """The samples of a batch and those that are replayed with it."""
    assert learner.memory is not None
    wanted = (learner.method.replayed_rows(draw, learner.replay) for draw in range(learner.method.draws))
    return stream.batch_size + sum(min(rows, learner.memory.capacity) for rows in wanted)
