"""Feed a stream to a learner, keep score, and be able to stop at any moment.

One run is one seed. All that is not in the learner's state is where in the stream it is and what was measured so far;
both lie in the checkpoint, so a run that is killed and started again ends with the same bits.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.evaluation.collapse import Collapse, collapses
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields, under, within
from sncl.training.background_tests import BackgroundTests
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.descent import scale_steps
from sncl.training.diagnostics import diagnostics
from sncl.training.evaluate import (
    Assessment,
    Scores,
    accuracies,
    check_task,
    learned_after,
    open_fraction,
    task_tests,
    tested_after,
)
from sncl.training.events import Evaluation, Moment, Watch
from sncl.training.finite import check_weights
from sncl.training.folder import BOARD, CHECKPOINT, CHECKPOINT_SECONDS, TASK_NETWORK, same_experiment
from sncl.training.group import check_same_state
from sncl.training.learner import Learner
from sncl.training.log import LOG, Log, NoLog
from sncl.training.reporting import Ended, Reporter
from sncl.training.schedule import Place, StepSizes, batch_schedule, following, total_steps
from sncl.training.stopping import Stopped, finishing, stop_asked
from sncl.training.tensorboard import Board, gate_values
from sncl.training.weighting import TaskWeights

LOG_LINES = 200  # about how many lines of losses a run writes


@dataclass
class Reached:
    """How far a run is: the next batch, what was measured, and the length of its log."""

    place: Place = field(default_factory=Place)
    scores: Scores = field(default_factory=Scores)
    log_length: int = 0


def resumed(learner: Learner, folder: Path, identity: dict[str, Any]) -> Reached:
    """Bring the learner to where the checkpoint in ``folder`` is; without one, the beginning."""
    if not (folder / CHECKPOINT).exists():
        return Reached()
    tensors, description = read_checkpoint(folder / CHECKPOINT)
    if not same_experiment(description.get("experiment"), identity):
        raise SnclError(f"{folder} holds a checkpoint of another experiment; choose another `out`")
    try:
        scores = Scores.restored(description["scores"], within("scores", tensors))
        reached = Reached(Place(*description["place"]), scores, description["log_length"])
        of_learner = dict(description["learner"])
        if not all(type(number) is int and 0 <= number < 2**63 for number in (*reached.place, reached.log_length)):
            raise ValueError
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SnclError(f"{folder / CHECKPOINT} is damaged: it does not say how far its run is") from error
    learner.restore(tensors, of_learner)
    if not reached.scores.best_recalls:  # an older checkpoint does not say: what came before counts as learned
        reached.scores.best_recalls = [100.0] * reached.place.task
    return reached


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
    balance: bool = False,
    step_sizes: StepSizes | None = None,
) -> Scores:
    """Learn the stream from where ``folder`` says it stopped, or from its beginning.

    ``identity`` names the experiment; a checkpoint of another one is refused. A checkpoint is written at the end of
    every task, every ``checkpoint_seconds`` (0: behind every batch), and when the process is told to stop.
    ``keep_tasks`` also leaves the network after each task there, ``tensorboard`` a log for TensorBoard; both change
    nothing else. ``balance`` makes the samples of rare classes count more; ``step_sizes`` drop late in each task. Of
    processes that share the learner, the first one writes.
    """
    reached = resumed(learner, folder, identity)
    writes = learner.group is None or learner.group.rank == 0
    with (
        Log(folder / LOG, reached.log_length) if writes else NoLog() as log,
        Board(folder / BOARD, learner.steps) if tensorboard and writes else nullcontext() as board,
    ):
        running = StreamRun(learner, stream, epochs, folder, identity, reached, log, board, watch)
        running.weights = TaskWeights(stream) if balance else None
        running.step_sizes = step_sizes
        running.score_untrained()
        with finishing(), running.background_tests:
            running.learn(reached.place, checkpoint_seconds, keep_tasks)
    return reached.scores


class StreamRun:
    """One seed on its way through a stream, from where ``reached`` says, with all who are told of it."""

    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        epochs: int,
        folder: Path,
        identity: dict[str, Any],
        reached: Reached,
        log: Log,
        board: Board | None,
        watch: Watch | None,
    ) -> None:
        self.learner, self.stream, self.epochs = learner, stream, epochs
        self.folder, self.identity = folder, identity
        self.scores = reached.scores
        self.log, self.board = log, board
        self.writes = not isinstance(log, NoLog)
        self.weights: TaskWeights | None = None
        self.step_sizes: StepSizes | None = None
        self.total = total_steps(stream, epochs)
        self.samples = 0  # learned since the run was started or resumed
        self.begun = self.saved = time.monotonic()
        self.earlier = self.scores.seconds
        self.tests = task_tests(stream)
        self.background_tests = BackgroundTests()
        self.behind = self.background_tests.behind
        news = None
        if self.scores.matrices:
            learned = learned_after(stream, reached.place.task - 1)
            collapsed = self._collapsed(reached.place.task - 1)
            news = Evaluation(self.scores.last(learned), log.last("evaluation"), collapsed)
        self.reporter = Reporter(log, board, watch, news)

    def learn(self, start: Place, checkpoint_seconds: float, keep_tasks: bool) -> None:
        """Learn the batches from ``start`` on."""
        self.reporter.begin(time.monotonic())
        for place, positions, last in batch_schedule(self.stream, self.epochs, start):
            x, y = self.stream.batch(place.task, positions)
            if self.step_sizes is not None:
                scale_steps(self.learner.ready.optimizer, self.step_sizes.factor_at(self.stream, self.epochs, place))
            losses = self.learner.learn(x, y, None if self.weights is None else self.weights(place.task, y))
            self.samples += len(positions)
            self.background_tests.look()
            self._report(place, losses, last)
            if last:
                self._end_task(place)
            stops, saves = self._agreed(stop_asked(), time.monotonic() - self.saved >= checkpoint_seconds)
            if stops or saves:
                self.background_tests.finish()
            if last or stops or saves:
                self.learner.watch.look()
                if last and keep_tasks:  # before the checkpoint: a run that is killed in between writes it again
                    self._keep_network(place.task)
                self._save(following(place, last))
                if stops or (self.learner.group is None and stop_asked()):
                    self.background_tests.finish()
                    raise Stopped
            if last:
                self.behind(partial(self.reporter.begin, time.monotonic()))

    def _agreed(self, stops: bool, saves: bool) -> tuple[bool, bool]:
        """Whether to stop and to save; of processes that share the learner, if any of them is to."""
        if self.learner.group is not None:
            wanted = self.learner.group.most(2 * stops or saves)
            return wanted == 2, wanted > 0
        return stops, saves

    def score_untrained(self) -> None:
        """The reference of forward transfer."""
        if not self.scores.untrained and self.stream.boundaries:
            self.learner.prepare(self.stream.batch(0, torch.arange(2))[0])
            self.scores.untrained = accuracies(self.learner, self.stream, range(self.stream.test_tasks))

    def _report(self, place: Place, losses: Fields, last: bool) -> None:
        """Tell of a step, and now and then of its losses."""
        moment = self._moment(place)
        if last or moment.steps % max(1, self.total // LOG_LINES) == 0:
            self.learner.watch.look()
            moment = moment._replace(losses={name: float(loss) for name, loss in losses.items()})
        self.behind(partial(self.reporter.step, moment, time.monotonic()))

    def _end_task(self, place: Place) -> None:
        """Tell the learner that a task has ended, where it may know, and evaluate it; the next one need not wait."""
        self.background_tests.finish()
        learner, stream, task = self.learner, self.stream, place.task
        if stream.boundaries:
            learner.boundary(*self._task_samples(task))
        is_last = task == stream.tasks - 1
        ended = Ended(
            self._moment(place),
            open_fraction(learner),
            diagnostics(learner, stream, learned_after(stream, task), last=is_last),
            None if self.board is None else gate_values(learner),
            max(self.scores.largest_loss, learner.watch.largest),
        )
        self.scores.largest_loss = learner.watch.largest = 0.0  # the next task starts without large losses
        then = partial(self._evaluated, ended)
        self.background_tests.begin(learner, stream, tested_after(stream, task), then, beside=not is_last)

    def _evaluated(self, ended: Ended, found: Assessment) -> None:
        """Take in what the tests behind a task have found."""
        task = ended.moment.task
        learned = learned_after(self.stream, task)
        self.scores.add(found, learned, ended.open_fraction)
        check_task(self.scores, self.tests, task, ended.largest_loss)
        evaluation = Evaluation(self.scores.last(learned), ended.inside, self._collapsed(task))
        matrices = self.scores.matrices if self.stream.boundaries else {}
        self.reporter.evaluation(ended, found.accuracies, evaluation, matrices)

    def _collapsed(self, task: int) -> tuple[Collapse, ...]:
        """The tasks that were not learned; this one may still be, by what is replayed of it, unless it is the last."""
        is_last = task == self.stream.tasks - 1
        found = collapses(self.scores.best_recalls, self.tests)
        return tuple(each for each in found if is_last or each.task <= task)

    def _task_samples(self, task: int) -> tuple[Tensor, Tensor] | tuple[()]:
        """All samples of a task, for a method that looks at them once more when it ends."""
        if not self.learner.method.revisits:
            return ()
        return self.stream.batch(task, torch.arange(len(self.stream.phases[task].rows)))

    def _moment(self, place: Place) -> Moment:
        """Where the run is now."""
        memory = self.learner.memory
        return Moment(
            steps=self.learner.steps,
            total=self.total,
            task=place.task,
            tasks=self.stream.tasks,
            epoch=place.epoch,
            epochs=self.epochs,
            rows=self.samples,
            memory=(len(memory), memory.capacity) if memory is not None else None,
        )

    def _save(self, next_place: Place) -> None:
        """Store the run as it is now, once the tests in front of it are made."""
        check_weights(self.learner)
        state = self.learner.state()
        check_same_state(self.learner, state)
        self.scores.largest_loss = max(self.scores.largest_loss, self.learner.watch.largest)
        facts = {"experiment": self.identity, "learner": self.learner.description(), "place": next_place}
        self.behind(partial(self._write, state, facts))

    def _write(self, state: Fields, facts: dict[str, Any]) -> None:
        """Write the checkpoint; what it refers to is on the disk before it is."""
        self.scores.seconds = self.earlier + time.monotonic() - self.begun
        if self.board is not None:
            self.board.flush()
        facts |= {"scores": self.scores.description(), "log_length": self.log.length()}
        if self.writes:
            write_checkpoint(self.folder / CHECKPOINT, state | under("scores", self.scores.tensors()), facts)
        self.saved = time.monotonic()

    def _keep_network(self, task: int) -> None:
        """Leave the network as it is after a task, with the method's buffers, for :meth:`Learner.restore_network`."""
        kept = ("network/", "ema/", "method/")
        state = {name: value for name, value in self.learner.state().items() if name.startswith(kept)}
        check_weights(self.learner)
        description = {"experiment": self.identity, "learner": self.learner.description(), "task": task}
        if self.writes:
            path = self.folder / TASK_NETWORK.format(task + 1)
            self.behind(partial(write_checkpoint, path, state, description))
