"""Follow a live stream: predict every batch, then learn what is labelled of it, and resume after restarts.

>>> for answer in follow(learner, source, snapshot="learner.safetensors", every=100):
...     print(answer.predicted, answer.accuracy)

A snapshot is one file that is replaced as a whole. It holds the learner and the position in the stream, so what is read
again behind that position is learned exactly once.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from sncl.errors import Diverged, SnclError
from sncl.tensors.fields import Fields, Inputs, picked
from sncl.training.checkpoint import make_folder, read_checkpoint, remove_parts, write_checkpoint
from sncl.training.finite import check_weights
from sncl.training.items import item_batch, item_parts, whole_labels
from sncl.training.learner import Learner
from sncl.training.state import tensors_of

SECONDS = 60.0  # between snapshots, unless told otherwise
FADING = 0.99  # how much less each earlier sample counts in the recent accuracy


class Position(NamedTuple):
    """How far a stream has been followed: batches, samples and the last token that came with a batch."""

    batches: int = 0
    rows: int = 0
    token: Any = None


class Score(NamedTuple):
    """Labelled samples so far and how many of them were predicted right, plainly and fading with age."""

    labelled: int = 0
    right: int = 0
    fading_labelled: float = 0.0
    fading_right: float = 0.0

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    @property
    def recent(self) -> float | None:
        return self.fading_right / self.fading_labelled if self.labelled else None

    def after(self, hits: Tensor) -> Score:
        """The score with these samples too; ``hits`` are 1 or 0, the latest last. [rows]"""
        count = len(hits)
        weights = FADING ** torch.arange(count - 1, -1, -1, dtype=torch.float64)
        kept = FADING**count
        return Score(
            self.labelled + count,
            self.right + int(hits.sum()),
            self.fading_labelled * kept + float(weights.sum()),
            self.fading_right * kept + float((weights * hits).sum()),
        )


class Answer(NamedTuple):
    """What one batch of the stream led to.

    ``predicted`` are the most likely classes, before anything was learned of the batch. [rows]
    ``accuracy`` is the share of right predictions over all labelled samples so far, this batch included, and ``recent``
    the same where each sample counts a hundredth less than the one behind it; None while no label has come. ``losses``
    are those of the training step, empty where nothing was labelled. ``position`` is behind this batch, and ``stored``
    says whether a snapshot holds it already. ``refused`` is why nothing was predicted or learned, where bad batches are
    skipped.
    """

    predicted: Tensor
    accuracy: float | None
    recent: float | None
    losses: Fields
    position: Position
    stored: bool
    refused: SnclError | None = None


LiveSource = Iterable[Any] | Callable[[Position], Iterable[Any]]


def follow(
    learner: Learner,
    source: LiveSource,
    *,
    snapshot: str | Path | None = None,
    every: int | None = None,
    seconds: float | None = None,
    skip_bad: bool = False,
) -> Iterator[Answer]:
    """Predict and learn what ``source`` yields, one :class:`Answer` for each item.

    An item is ``(x, y)``, ``(x, y, token)`` or ``x`` alone; ``x`` is a batch, or a single sample if ``y`` is one label.
    Samples without a label are only predicted: ``y`` is None, or negative or NaN for each of them.

    ``snapshot`` is a file that is written every so many batches (``every``), after so many ``seconds`` (60, if neither
    is given), and at the end; if it exists, the learner goes on from there. A process that is killed loses what came
    since the last one; with ``every=1`` a batch is stored before its answer is given, and nothing is lost.

    ``source`` is an iterable, which is taken as it comes, or a function that is told the :class:`Position` of the
    snapshot and returns what comes behind it; then every batch is learned exactly once, however often the process is
    killed. ``token`` is anything JSON can hold that tells the source where a batch came from, such as a file's name.

    A batch that the learner refuses (other inputs than before, NaN, unknown labels) raises and is not passed: a restart
    meets it again. With ``skip_bad`` it is passed, and its answer says why it was ``refused``.
    """
    if snapshot is None and (every is not None or seconds is not None):
        raise SnclError("every and seconds say when a snapshot is written; name its file: snapshot=...")
    if every is not None and every < 1:
        raise SnclError(f"a snapshot is written every 1 or more batches, not every {every}")
    if seconds is not None and not seconds >= 0:
        raise SnclError(f"seconds between snapshots are 0 or more, not {seconds}")
    if every is None and seconds is None:
        seconds = SECONDS
    path = None if snapshot is None else _real(Path(snapshot))
    return _followed(learner, source, path, every or math.inf, seconds, skip_bad)


def _followed(
    learner: Learner, source: LiveSource, path: Path | None, every: float, seconds: float | None, skip_bad: bool
) -> Iterator[Answer]:
    with nullcontext() if path is None else _locked(path):
        position, score = (Position(), Score()) if path is None else _restored(learner, path)
        snapshots = _Snapshots(learner, path, every, seconds, position)
        try:
            for item in source if isinstance(source, Iterable) else source(position):
                with learner.exclusively():  # no other thread learns between a prediction and its snapshot
                    answer, score = _answer(learner, item, position, score, skip_bad)
                    position = answer.position
                    snapshots.reach(position, score)
                yield answer._replace(stored=position is snapshots.stored)
        finally:
            snapshots.end()


def _answer(learner: Learner, item: Any, position: Position, score: Score, skip_bad: bool) -> tuple[Answer, Score]:
    """Predict and learn one item: its answer, and the score with it."""
    count, token, refused, steps = 0, None, None, learner.steps
    predicted, losses = torch.zeros(0, dtype=torch.int64), Fields()
    try:
        x, y, token = item_parts(item)
        x, y = item_batch(learner, x, y)
        count = len(y)
        predicted, losses, score = _predict_and_learn(learner, x, y, score)
    except SnclError as error:
        if not skip_bad or isinstance(error, Diverged) or learner.interrupted or learner.steps != steps:
            raise
        refused = error
    passed = Position(position.batches + 1, position.rows + count, position.token if token is None else token)
    return Answer(predicted, score.accuracy, score.recent, losses, passed, False, refused), score


def _predict_and_learn(learner: Learner, x: Inputs, y: Tensor, score: Score) -> tuple[Tensor, Fields, Score]:
    """Predict a batch and learn what is labelled of it: predictions, losses and the score with this batch."""
    learner.prepare(x)
    predicted = learner.predict(x)
    known = (y >= 0).nonzero()[:, 0]  # NaN is not
    if not len(known):
        return predicted, {}, score
    labels = whole_labels(y[known])
    losses = learner.learn(x if len(known) == len(y) else picked(x, known), labels)
    return predicted, losses, score.after((predicted.cpu()[known] == labels).double())


class _Snapshots:
    """The file that holds the learner and its position, written when it is time and at the end.

    A learner whose last batch was interrupted, is not finite or could not be written is not stored: behind the position
    that lies in the file everything is then learned again, once.
    """

    def __init__(
        self, learner: Learner, path: Path | None, every: float, seconds: float | None, position: Position
    ) -> None:
        self.learner, self.path, self.every, self.seconds = learner, path, every, seconds
        self.reached = self.stored = position
        self.steps = learner.steps  # of the learner at the position reached
        self.score = Score()
        self.stored_at = time.monotonic()
        self.failed = False

    def reach(self, position: Position, score: Score) -> None:
        """The learner is at this position now; store it if it is time."""
        self.reached, self.steps, self.score = position, self.learner.steps, score
        late = self.seconds is not None and time.monotonic() - self.stored_at >= self.seconds
        if late or position.batches - self.stored.batches >= self.every:
            self._store()

    def end(self) -> None:
        """Store what came since the last snapshot, unless the learner is not where the position says."""
        there = self.learner.steps == self.steps and not self.learner.interrupted
        if there and self.reached is not self.stored and not self.failed:
            self._store()

    def _store(self) -> None:
        if self.path is not None and self.learner.signature.example:  # nothing to store while all batches were bad
            self.failed = True
            with self.learner.exclusively():
                _store(self.learner, self.path, self.reached, self.score)
            self.stored_at, self.stored, self.failed = time.monotonic(), self.reached, False


def _real(path: Path) -> Path:
    """The file itself, of which every other name is a link: there is one lock for all of them."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise SnclError(f"cannot write {path}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from following with the same file, and clear away what a killed one had begun to write."""
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, thread_local=False)  # closed by any thread
    try:
        make_folder(path.parent)
        lock.acquire()
        remove_parts(path.parent, re.escape(path.name))
    except Timeout as error:
        raise SnclError(f"another process follows a stream with {path}; wait for it or name another file") from error
    except OSError as error:
        raise SnclError(f"cannot write beside {path}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def _restored(learner: Learner, path: Path) -> tuple[Position, Score]:
    if not path.exists():
        return Position(), Score()
    tensors, description = read_checkpoint(path)
    if "follow" not in description:
        raise SnclError(f"{path} does not say how far a stream was followed; load it yourself and name another file")
    if learner.steps not in (0, description["steps"]):
        raise SnclError(
            f"{path} is from step {description['steps']}, but this learner is at step {learner.steps} already; give a "
            "new learner or another file"
        )
    learner.restore(tensors, description)
    followed = description["follow"]
    return Position(*followed["position"]), Score(*followed["score"])


def _store(learner: Learner, path: Path, position: Position, score: Score) -> None:
    check_weights(learner)
    followed = {"position": position, "score": score}
    try:
        json.dumps(followed)
    except (TypeError, ValueError) as error:
        what = type(position.token).__name__
        raise SnclError(f"a token is something JSON can hold, such as a text or a number, not {what}") from error
    write_checkpoint(path, tensors_of(learner), {**learner.description(), "follow": followed})
