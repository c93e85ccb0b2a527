"""The stream, the network and the learner of an experiment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

from torch import nn

from sncl.errors import SnclError
from sncl.methods.table import entry
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.experiment import Experiment
from sncl.runs.settings import make_method
from sncl.streams.benchmarks import named
from sncl.streams.build import build, build_user
from sncl.streams.cache import Progress
from sncl.streams.stream import Stream
from sncl.streams.transforms import Transform
from sncl.streams.user.data import read
from sncl.tensors.random import seeded
from sncl.training.descent import Descending
from sncl.training.learner import Learner


class SampleKind(Protocol):
    """What a network and a learner are made for: a stream, or what is kept of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def classes(self) -> int: ...

    @property
    def transform(self) -> Transform: ...


def make_network(experiment: Experiment, stream: SampleKind) -> nn.Module:
    """The benchmark's network, its weights drawn from the seed alone."""
    width = int(experiment.settings["width"])
    network = named(experiment.stream).network if experiment.user_data is None else experiment.user_data.network
    with seeded(experiment.seed, "network"):
        if network == "mlp":
            return MLP(math.prod(stream.shape), stream.classes, width)
        return ResNet18(stream.classes, stream.shape[0], width)


def make_stream(
    experiment: Experiment, data: Path | None, progress: Progress | None = None, *, standardised: bool = True
) -> Stream:
    """The stream of an experiment; ``data`` is the folder of the data sets of `sncl list`.

    Without ``standardised``, numbers stay as they were read.
    """
    split = None if "split" not in experiment.settings else str(experiment.settings["split"])
    batch_size, place = int(experiment.settings["batch_size"]), experiment.device
    seed, tasks, validation = experiment.seed, experiment.tasks, experiment.validation
    augment = experiment.settings.get("augment")
    if experiment.user_data is None:
        stream = build(
            experiment.stream,
            data,
            seed=seed,
            batch_size=batch_size,
            tasks=tasks,
            split=split,
            validation=validation,
            device=place,
            progress=progress,
            augment=None if augment is None else str(augment),
        )
        if experiment.data not in (None, stream.source_fingerprint):
            raise SnclError(
                f"the data of {experiment.stream} found here are not those that this run is about; name the folder "
                "that has them with `data`"
            )
    else:
        found = read(experiment.user_data.spec(), progress)
        if found.user_data.fingerprint != experiment.user_data.fingerprint:
            raise SnclError(f"the data in {experiment.user_data.path} are no longer those that this run is about")
        stream = build_user(
            found, seed, batch_size, tasks, split, validation, place, str(augment or "none"), standardised
        )
    return stream.joint() if entry(experiment.method).joint else stream


def make_learner(experiment: Experiment, stream: SampleKind, group: str | None = None) -> Learner:
    """The learner of an experiment; ``group`` is that of :class:`~sncl.training.learner.Learner`."""
    settings = experiment.settings
    return Learner(
        make_network(experiment, stream),
        make_method(experiment.method, settings),
        memory=max(experiment.memory, 1),
        replay=int(settings["replay"]),
        lr=float(settings["lr"]),
        transform=stream.transform,
        seed=experiment.seed,
        device=experiment.device,
        precision=experiment.precision,
        engine=experiment.engine,
        ema=float(settings["ema"]),
        clip=float(settings.get("clip", 0.0)),
        optimizer=Descending(
            float(settings.get("momentum", 0.0)), float(settings.get("weight_decay", 0.0)), "lr_drop" in settings
        ),
        group=group,
    )


def check_memory(experiment: Experiment, stream: Stream) -> None:
    """Refuse a memory that is larger than the stream."""
    rows = sum(len(phase.rows) for phase in stream.phases)
    if experiment.memory > rows:
        raise SnclError(f"`memory={experiment.memory}` is more than the {rows} samples {experiment.stream} has")
