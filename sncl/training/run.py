"""Feed a stream to a learner, keep score, and be able to stop at any moment.

One run is one seed. All that is not in the learner's state is where in the stream it is and what was measured so far;
both lie in the checkpoint, so a run that is killed and started again ends with the same bits.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from sncl.errors import Diverged, SnclError
from sncl.evaluation.accuracy import READOUTS, Readout, correct
from sncl.evaluation.metrics import mean
from sncl.networks.gating.attach import open_neurons, unmasked
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields, within
from sncl.training.board import Board
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.diagnostics import probe
from sncl.training.learner import Learner

CHECKPOINT = "checkpoint.safetensors"
LOG = "log.jsonl"
BOARD = "tensorboard"
TASK_NETWORK = "task-{:02d}.safetensors"  # the network after a task, counted from 1
CHECKPOINT_SECONDS = 30.0  # between two checkpoints, unless told otherwise
LOG_LINES = 200  # about how many lines of losses a run writes
TOLD_SECONDS = 0.2  # between two moments that say nothing but how far a run is

Row = list[float | None]


class Place(NamedTuple):
    """The next batch to learn."""

    task: int = 0
    epoch: int = 0
    batch: int = 0


@dataclass
class Scores:
    """What was measured: accuracies in percent by read-out, of the untrained network and after each task."""

    untrained: dict[Readout, Row] = field(default_factory=dict)
    matrices: dict[Readout, list[Row]] = field(default_factory=dict)
    open_by_task: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Evaluation(NamedTuple):
    """What the last evaluation found: accuracies of the tasks learned by read-out, and what :func:`probe` says."""

    tested: dict[Readout, Row]
    inside: dict[str, Any]

    def means(self) -> dict[str, float]:
        """The average over the tasks learned."""
        return {readout: mean(row) for readout, row in self.tested.items()}


class Moment(NamedTuple):
    """What a run tells whoever watches it."""

    steps: int
    total: int
    task: int
    tasks: int
    losses: dict[str, float] | None = None
    accuracy: dict[str, float] | None = None
    reading: bool = False  # the data are still being read; steps and total count images
    epoch: int = 0
    epochs: int = 1
    rows: int = 0  # learned since the run was started or resumed
    memory: tuple[int, int] | None = None  # rows held, and how many may be
    evaluation: Evaluation | None = None  # when there is a new one, and once when a run is resumed


Watch = Callable[[Moment], None]


def sparingly(watch: Watch) -> Watch:
    """Tell of losses and scores, and of all other moments a few in a second."""
    told = -math.inf

    def tell(moment: Moment) -> None:
        nonlocal told
        now = time.monotonic()
        if moment.losses is not None or moment.accuracy is not None or now - told >= TOLD_SECONDS:
            told = now
            watch(moment)

    return tell


def schedule(stream: Stream, epochs: int, start: Place) -> Iterator[tuple[Place, Tensor, bool]]:
    """The batches from ``start`` on: where each is, its positions in the phase, and whether it ends its task."""
    for task in range(start.task, stream.tasks):
        for epoch in range(start.epoch if task == start.task else 0, epochs):
            batches = stream.positions(task, epoch)
            first = start.batch if (task, epoch) == start[:2] else 0
            for number in range(first, len(batches)):
                last = epoch == epochs - 1 and number == len(batches) - 1
                yield Place(task, epoch, number), batches[number], last


def total_steps(stream: Stream, epochs: int) -> int:
    return sum(len(stream.positions(task, 0)) for task in range(stream.tasks)) * epochs


def following(place: Place, last: bool) -> Place:
    return Place(place.task + 1) if last else place._replace(batch=place.batch + 1)


def accuracies(learner: Learner, stream: Stream, tasks: range) -> dict[Readout, Row]:
    """Accuracy in percent on the test sets of ``tasks``; None for the others."""
    readouts = READOUTS[stream.scenario]
    if learner.method.needs_task_at_test:
        readouts = tuple(readout for readout in readouts if readout == "task_il")
    rows: dict[Readout, Row] = {readout: [None] * stream.test_tasks for readout in readouts}
    for task in tasks:
        x, y = stream.test(task)
        logits = learner.logits(x, task)
        for readout in readouts:
            rows[readout][task] = 100 * int(correct(logits, y, stream.groups[task], readout)) / len(y)
    return rows


def otherwise(learner: Learner, stream: Stream) -> dict[str, dict[Readout, float]]:
    """The final accuracy without what only matters in evaluation: the average of the weights, the mask of the gates."""
    tasks = range(stream.test_tasks)
    ways: dict[str, AbstractContextManager[None]] = {}
    if learner.ema:
        ways["as_trained"] = learner.as_trained()
    if not all(bool(layer.all()) for layer in predicting_neurons(learner).values()):
        ways["unmasked"] = unmasked(learner.net)
    found: dict[str, dict[Readout, float]] = {}
    for name, way in ways.items():
        with way:
            found[name] = {readout: mean(row) for readout, row in accuracies(learner, stream, tasks).items()}
    return found


def predicting_neurons(learner: Learner) -> dict[str, Tensor]:
    """Which neurons are open in the network that predicts, by layer: bool [channels]."""
    with learner.predicting():
        return open_neurons(learner.net)


def open_fraction(learner: Learner) -> float | None:
    """The part of all gated neurons that is open; None where there are no gates."""
    layers = list(predicting_neurons(learner).values())
    return sum(int(layer.sum()) for layer in layers) / sum(layer.numel() for layer in layers) if layers else None


def open_by_layer(learner: Learner) -> dict[str, float] | None:
    """The part of each gated layer's neurons that is open; None where there are no gates."""
    return {name: float(layer.float().mean()) for name, layer in predicting_neurons(learner).items()} or None


class Log:
    """One JSON object a line; after a crash it is cut back to what the checkpoint knows of."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        try:
            self.file = path.open("ab")
            self.file.truncate(min(length, self.length()))  # never longer: that would fill it up with zeros
        except OSError as error:
            raise SnclError(f"cannot write {path}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()

    def write(self, **entry: Any) -> None:
        self.file.write((json.dumps(entry) + "\n").encode())

    def last(self, event: str) -> dict[str, Any]:
        """The last entry of this kind; an empty one where there is none."""
        self.file.flush()
        for line in reversed(self.path.read_bytes().splitlines()):
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") == event:
                    return entry
        return {}

    def length(self) -> int:
        """How many bytes are safely stored; the file's position says something else after a truncation."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return os.fstat(self.file.fileno()).st_size


def run(
    learner: Learner,
    stream: Stream,
    epochs: int,
    folder: Path,
    identity: dict[str, Any],
    watch: Watch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep_tasks: bool = False,
    tensorboard: bool = False,
) -> Scores:
    """Learn the stream from where ``folder`` says it stopped, or from its beginning.

    ``identity`` names the experiment; a checkpoint of another one is refused. A checkpoint is written at the end of
    every task and every ``checkpoint_seconds`` (0: behind every batch). ``keep_tasks`` also leaves the network after
    each task there, ``tensorboard`` a log for TensorBoard; both change nothing else.
    """
    total = total_steps(stream, epochs)
    log_every = max(1, total // LOG_LINES)
    start, scores, log_length = Place(), Scores(), 0
    if (folder / CHECKPOINT).exists():
        tensors, description = read_checkpoint(folder / CHECKPOINT)
        if description.get("experiment") != identity:
            raise SnclError(f"{folder} holds a checkpoint of another experiment; choose another --out")
        learner.restore(tensors, description["learner"])
        start, log_length = Place(*description["place"]), description["log_length"]
        scores = Scores(**description["scores"])
    with (
        Log(folder / LOG, log_length) as log,
        Board(folder / BOARD, learner.steps) if tensorboard else nullcontext() as board,
    ):
        begun = saved = time.monotonic()
        earlier = scores.seconds
        rows = 0
        news = None
        if scores.matrices:
            news = Evaluation(learned_rows(stream, start.task - 1, scores), log.last("evaluation"))

        def tell(
            place: Place, losses: dict[str, float] | None = None, accuracy: dict[str, float] | None = None
        ) -> None:
            nonlocal news
            if watch:
                where = (learner.steps, total, place.task, stream.tasks)
                watch(Moment(*where, losses, accuracy, False, place.epoch, epochs, rows, filling(learner), news))
                news = None

        def save(reached: Place) -> None:
            nonlocal saved
            scores.seconds = earlier + time.monotonic() - begun
            if board is not None:
                board.flush()
            description = {
                "experiment": identity,
                "learner": learner.description(),
                "place": reached,
                "scores": asdict(scores),
                "log_length": log.length(),
            }
            state = learner.state()
            check_finite(state, learner.steps)
            write_checkpoint(folder / CHECKPOINT, state, description)
            saved = time.monotonic()

        if not scores.untrained and stream.boundaries:  # the reference of forward transfer
            learner.prepare(stream.batch(0, torch.arange(2))[0])
            scores.untrained = accuracies(learner, stream, range(stream.test_tasks))
        if board is not None:
            board.begin()
        for place, positions, last in schedule(stream, epochs, start):
            losses = learner.learn(*stream.batch(place.task, positions))
            rows += len(positions)
            if learner.steps % log_every == 0 or last:
                values = finite(losses, learner.steps)
                log.write(event="losses", step=learner.steps, task=place.task, epoch=place.epoch, losses=values)
                if board is not None:
                    board.losses(learner.steps, rows, values, filling(learner))
                tell(place, losses=values)
            else:
                tell(place)
            if last:
                if stream.boundaries:
                    learner.boundary(*task_rows(learner, stream, place.task))
                inside = score(learner, stream, place.task, scores, log)
                news = Evaluation(learned_rows(stream, place.task, scores), inside)
                if board is not None:
                    board.evaluation(learner, news.tested, scores.matrices if stream.boundaries else {})
                tell(place, accuracy=news.means())
            if last or time.monotonic() - saved >= checkpoint_seconds:
                finite(losses, learner.steps)
                if last and keep_tasks:  # before the checkpoint: a run that is killed in between writes it again
                    keep_network(learner, place.task, folder, identity)
                save(following(place, last))
            if last and board is not None:
                board.begin()
    return scores


def keep_network(learner: Learner, task: int, folder: Path, identity: dict[str, Any]) -> None:
    """Leave the network as it is after a task, with the method's buffers, for :meth:`Learner.restore_network`."""
    state = {name: value for name, value in learner.state().items() if name.startswith(("network/", "ema/", "method/"))}
    check_finite(state, learner.steps)
    description = {"experiment": identity, "learner": learner.description(), "task": task}
    write_checkpoint(folder / TASK_NETWORK.format(task + 1), state, description)


def task_rows(learner: Learner, stream: Stream, task: int) -> tuple[Tensor, Tensor] | tuple[()]:
    """All rows of a task, for a method that looks at them once more when it ends."""
    return stream.batch(task, torch.arange(len(stream.phases[task].rows))) if learner.method.revisits else ()


def learned_after(stream: Stream, task: int) -> range:
    """The tasks seen so far."""
    return range(task + 1 if stream.boundaries else stream.test_tasks)


def tested_after(stream: Stream, task: int) -> range:
    """The tasks seen so far, and the next one before it is learned."""
    return range(min(task + 2, stream.test_tasks) if stream.boundaries else stream.test_tasks)


def learned_rows(stream: Stream, task: int, scores: Scores) -> dict[Readout, Row]:
    """The last accuracies of the tasks seen, by read-out."""
    learned = len(learned_after(stream, task))
    return {readout: rows[-1][:learned] for readout, rows in scores.matrices.items()}


def filling(learner: Learner) -> tuple[int, int] | None:
    """How many rows the memory holds and how many it may hold, which the host knows; None where there is none."""
    return (len(learner.memory), learner.memory.capacity) if learner.memory is not None else None


def score(learner: Learner, stream: Stream, task: int, scores: Scores, log: Log) -> dict[str, Any]:
    """Test what is to be tested behind this task; what the network and its memory look like inside."""
    rows = accuracies(learner, stream, tested_after(stream, task))
    for readout, row in rows.items():
        scores.matrices.setdefault(readout, []).append(row)
    fraction = open_fraction(learner)
    if fraction is not None:
        scores.open_by_task.append(fraction)
    remembered = len(learner.memory) if learner.memory is not None else 0
    inside = probe(learner, stream, learned_after(stream, task))
    log.write(
        event="evaluation",
        step=learner.steps,
        task=task,
        accuracy=rows,
        memory=remembered,
        active_fraction=fraction,
        **inside,
    )
    return inside


def finite(losses: Fields, step: int) -> dict[str, float]:
    """The losses as numbers; an error if one is no number any more."""
    values = {name: float(loss) for name, loss in losses.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise Diverged(
                f"the loss {name!r} became {value} by step {step}; use a smaller lr or smaller weights "
                "(--set lr=...). What was stored before is untouched"
            )
    return values


def check_finite(state: Fields, step: int) -> None:
    """Refuse to store a network that the last update broke: its loss was still a number."""
    for name, value in within("network", state).items():
        if not torch.isfinite(value).all():
            raise Diverged(
                f"the weights {name!r} became infinite or no numbers by step {step}; use a smaller lr or smaller "
                "weights (--set lr=...). What was stored before is untouched"
            )
