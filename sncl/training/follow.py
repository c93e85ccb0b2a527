"""Follow a live stream: predict every batch, then learn what is labelled of it, and resume after restarts.

>>> for answer in follow(learner, source, snapshot="learner.safetensors", every=100):
...     print(answer.predicted, answer.accuracy)

A snapshot is one file that is replaced as a whole. It holds the learner and the position in the stream, so what is read
again behind that position is learned exactly once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.errors import Diverged, SnclError
from sncl.tensors.fields import Fields, under, within
from sncl.training.answering import learn_late, predict_and_learn
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.finite import check_weights
from sncl.training.items import Late, as_item, item_batch
from sncl.training.learner import Learner
from sncl.training.locking import locked, real_file
from sncl.training.pending import DAMAGED, LateCount, Unlabelled
from sncl.training.state import tensors_of

PENDING = 10_000  # samples that may wait for their labels, unless told otherwise
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
    skipped. ``late`` counts the samples that wait for their labels. Behind :class:`Late` labels, ``predicted`` is what
    was predicted of their samples when these came.
    """

    predicted: Tensor
    accuracy: float | None
    recent: float | None
    losses: Fields
    position: Position
    stored: bool
    refused: SnclError | None = None
    late: LateCount = LateCount()


LiveSource = Iterable[Any] | Callable[[Position], Iterable[Any]]


def follow(
    learner: Learner,
    source: LiveSource,
    *,
    snapshot: str | Path | None = None,
    every: int | None = None,
    seconds: float | None = None,
    skip_bad: bool = False,
    pending: int = PENDING,
) -> Iterator[Answer]:
    """Predict and learn what ``source`` yields, one :class:`Answer` for each item.

    An item is ``(x, y)``, ``(x, y, token)`` or ``x`` alone; ``x`` is a batch, or a single sample if ``y`` is one label.
    Samples without a label are only predicted: ``y`` is None, or negative or NaN for each of them.

    Labels that come later belong to ids: ``Item(x, ids=ids)``, then ``Late(ids, y)``. The prediction that was made then
    counts for the accuracy, and the samples are learned when their labels come. At most ``pending`` samples wait for
    theirs, in the snapshot, too; the oldest are forgotten and counted. Without ids, a labelled sample whose very inputs
    came before without a label is scored by what was predicted then.

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
    if type(pending) is not int or pending < 0:
        raise SnclError(f"`pending` is how many samples may wait for their labels, 0 or more, not {pending!r}")
    if every is None and seconds is None:
        seconds = SECONDS
    path = None if snapshot is None else real_file(Path(snapshot))
    return _followed(learner, source, path, every or math.inf, seconds, skip_bad, Unlabelled(pending))


def _followed(
    learner: Learner,
    source: LiveSource,
    path: Path | None,
    every: float,
    seconds: float | None,
    skip_bad: bool,
    waiting: Unlabelled,
) -> Iterator[Answer]:
    with nullcontext() if path is None else locked(path):
        position, score = (Position(), Score()) if path is None else _restored(learner, path, waiting)
        snapshots = _Snapshots(learner, path, every, seconds, position, waiting)
        try:
            for item in source if isinstance(source, Iterable) else source(position):
                with learner.exclusively():  # no other thread learns between a prediction and its snapshot
                    answer, score = _answer(learner, item, position, score, waiting, skip_bad)
                    position = answer.position
                    snapshots.reach(position, score)
                yield answer._replace(stored=position is snapshots.stored)
        finally:
            snapshots.end()


def _answer(
    learner: Learner, item: Any, position: Position, score: Score, waiting: Unlabelled, skip_bad: bool
) -> tuple[Answer, Score]:
    """Predict and learn one item: its answer, and the score with it."""
    count, token, refused, steps = 0, None, None, learner.steps
    predicted, losses = torch.zeros(0, dtype=torch.int64), Fields()
    try:
        given = as_item(item)
        token = given.token
        if isinstance(given, Late):
            predicted, losses, hits = learn_late(learner, given, waiting)
        else:
            x, y = item_batch(learner, given.x, given.y)
            count = len(y)
            predicted, losses, hits = predict_and_learn(learner, x, y, given.ids, waiting)
        score = score.after(hits)
    except SnclError as error:
        if not skip_bad or isinstance(error, Diverged) or learner.interrupted or learner.steps != steps:
            raise
        refused = error
    passed = Position(position.batches + 1, position.rows + count, position.token if token is None else token)
    return Answer(predicted, score.accuracy, score.recent, losses, passed, False, refused, waiting.count()), score


class _Snapshots:
    """The file that holds the learner and its position, written when it is time and at the end.

    A learner whose last batch was interrupted, is not finite or could not be written is not stored: behind the position
    that lies in the file everything is then learned again, once.
    """

    def __init__(
        self,
        learner: Learner,
        path: Path | None,
        every: float,
        seconds: float | None,
        position: Position,
        waiting: Unlabelled,
    ) -> None:
        self.learner, self.path, self.every, self.seconds = learner, path, every, seconds
        self.waiting = waiting
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
                _store(self.learner, self.path, self.reached, self.score, self.waiting)
            self.stored_at, self.stored, self.failed = time.monotonic(), self.reached, False


def _restored(learner: Learner, path: Path, waiting: Unlabelled) -> tuple[Position, Score]:
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
    if "waiting" in followed:  # older snapshots have nothing of that
        try:
            waiting.load(within("waiting", tensors), followed["waiting"])
        except (SnclError, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise SnclError(DAMAGED) from error
    return Position(*followed["position"]), Score(*followed["score"])


def _store(learner: Learner, path: Path, position: Position, score: Score, waiting: Unlabelled) -> None:
    check_weights(learner)
    followed = {"position": position, "score": score, "waiting": waiting.description()}
    try:
        json.dumps(followed)
    except (TypeError, ValueError) as error:
        what = type(position.token).__name__
        raise SnclError(f"a token is something JSON can hold, such as a text or a number, not {what}") from error
    tensors = tensors_of(learner) | under("waiting", waiting.tensors())
    write_checkpoint(path, tensors, {**learner.description(), "follow": followed})
