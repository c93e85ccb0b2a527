"""Who is told of a run: its log, TensorBoard, and whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sncl.evaluation.accuracy import Readout
from sncl.evaluation.metrics import Matrix
from sncl.training.evaluate import Accuracies
from sncl.training.events import Evaluation, Moment, Watch
from sncl.training.log import Log
from sncl.training.tensorboard import Board, GateValues


class Ended(NamedTuple):
    """What a run was like when a task ended, of all that changes when it learns on."""

    moment: Moment
    open_fraction: float | None
    inside: dict[str, Any]
    gates: GateValues | None  # for TensorBoard
    largest_loss: float


def measured(rows: Accuracies) -> dict[Readout, list[float]]:
    """Accuracies for the log: of the tasks that were tested, the first ones, in hundredths of a percent."""
    return {readout: [round(value, 2) for value in row if value is not None] for readout, row in rows.items()}


class Reporter:
    """What is told of one run, by moments that say where it was; ``news`` go with the next one."""

    def __init__(self, log: Log, board: Board | None, watch: Watch | None, news: Evaluation | None = None) -> None:
        self.log, self.board, self.watch = log, board, watch
        self.news = news

    def begin(self, now: float) -> None:
        """Training starts or goes on ``now``: what came before does not count in its speed."""
        if self.board is not None:
            self.board.begin(now)

    def step(self, moment: Moment, now: float) -> None:
        """A step, and its losses where the moment has them."""
        if moment.losses is not None:
            self.log.write(
                event="losses", step=moment.steps, task=moment.task, epoch=moment.epoch, losses=moment.losses
            )
            if self.board is not None:
                self.board.losses(moment.steps, moment.rows, moment.losses, moment.memory, now)
        self._tell(moment)

    def evaluation(
        self, ended: Ended, accuracies: Accuracies, found: Evaluation, matrices: Mapping[Readout, Matrix]
    ) -> None:
        """The tests behind a task; ``matrices`` tell what was forgotten."""
        moment, self.news = ended.moment, found
        self.log.write(
            event="evaluation",
            step=moment.steps,
            task=moment.task,
            accuracy=measured(accuracies),
            memory=moment.memory[0] if moment.memory is not None else 0,
            active_fraction=ended.open_fraction,
            **found.inside,
        )
        if self.board is not None and ended.gates is not None:
            self.board.evaluation(moment.steps, found.tested, matrices, ended.gates)
        self._tell(moment._replace(accuracy=found.means()))

    def _tell(self, moment: Moment) -> None:
        if self.watch:
            self.watch(moment._replace(evaluation=self.news))
            self.news = None
