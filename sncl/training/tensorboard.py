"""A run as TensorBoard shows it: losses, accuracies, memory, gates and speed, written while it learns.

What is written follows the checkpoint as the log does: it is on the disk before a checkpoint is, and a run that is
resumed tells TensorBoard to forget what came behind the checkpoint, so that no step is there twice. Gates are looked at
when a task ends, where a run waits for its device anyway.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import torch

from sncl.errors import lacking
from sncl.evaluation.accuracy import Readout
from sncl.evaluation.metrics import Matrix, Row, forgetting, mean
from sncl.networks.gating.attach import gates, variance_gates
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

FLUSH_SECONDS = 10  # until TensorBoard can see what was written


def check_tensorboard() -> None:
    """Refuse to write what could not be written, before the runs."""
    if find_spec("tensorboard") is None:
        raise lacking("a log for TensorBoard", "tensorboard")


def await_next_second(folder: Path) -> None:
    """Let this second pass if a file of it is there.

    TensorBoard reads files in the order of their names, which begin with the second they were made in; only if this one
    comes last does it purge the others.
    """
    now = time.time()
    if any(folder.glob(f"events.out.tfevents.{int(now)}.*")):
        time.sleep(int(now) + 1 - now)


class GateValues(NamedTuple):
    """The gates of a network by layer: which are open, and log λ of random ones."""

    is_open: Fields
    log_lambda: Fields


@torch.no_grad()
def gate_values(learner: Learner) -> GateValues:
    """The gates as the learner predicts with them now."""
    with learner.predicting():
        return GateValues(
            {name: gate.is_open().cpu().clone() for name, gate in gates(learner.net.body)},
            {name: gate.log_lambda.cpu() for name, gate in variance_gates(learner.net.body)},
        )


class Board:
    """The event file of one run that has made ``steps`` steps; what an earlier process wrote of later ones is void."""

    def __init__(self, folder: Path, steps: int) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        await_next_second(folder)
        self.writer = SummaryWriter(str(folder), purge_step=steps + 1, flush_secs=FLUSH_SECONDS)
        self.steps, self.rows, self.since = steps, 0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.writer.close()

    def flush(self) -> None:
        self.writer.flush()

    def begin(self, now: float) -> None:
        """Training starts or goes on ``now``: what came before does not count in its speed."""
        self.since = now

    def losses(
        self, step: int, rows: int, values: dict[str, float], memory: tuple[int, int] | None, now: float
    ) -> None:
        """A line of losses behind ``step`` steps, ``now``, and the speed since the last one.

        ``rows`` were learned since the run was started or resumed; ``memory`` holds so many samples of so many.
        """
        for name, value in values.items():
            self.writer.add_scalar(f"loss/{name}", value, step)
        seconds = max(now - self.since, 1e-9)
        self.writer.add_scalar("speed/steps per second", (step - self.steps) / seconds, step)
        self.writer.add_scalar("speed/rows per second", (rows - self.rows) / seconds, step)
        if memory is not None:
            self.writer.add_scalar("memory/rows", memory[0], step)
            self.writer.add_scalar("memory/filled", memory[0] / memory[1], step)
        self.steps, self.rows, self.since = step, rows, now

    def evaluation(
        self, step: int, tested: Mapping[Readout, Row], matrices: Mapping[Readout, Matrix], gates: GateValues
    ) -> None:
        """Accuracies of the tasks learned behind so many steps, what was forgotten by ``matrices``, and the gates."""
        for readout, row in tested.items():
            self.writer.add_scalar(f"accuracy/{readout}/mean", mean(row), step)
            for task, value in enumerate(row, start=1):
                if value is not None:
                    self.writer.add_scalar(f"accuracy/{readout}/task {task:02d}", value, step)
        for readout, matrix in matrices.items():
            if (lost := forgetting(matrix)) is not None:
                self.writer.add_scalar(f"forgetting/{readout}", lost, step)
        for name, is_open in gates.is_open.items():
            self.writer.add_scalar(f"open neurons/{name}", int(is_open.sum()), step)
        for name, log_lambda in gates.log_lambda.items():
            self.writer.add_histogram(f"log lambda/{name}", log_lambda, step)
        if gates.is_open:
            everything = torch.cat(list(gates.is_open.values()))
            self.writer.add_scalar("open neurons/part of all", float(everything.double().mean()), step)
