"""Test sets predicted on all cores that a run has, some hundred samples on each: the same bits, sooner.

A run trains on one core or as many as it is told to (``threads``), since how a sum is split among them moves its last
bits. Its tests are other: every part of a test set is predicted by itself, so it may be done anywhere, and while the
run learns on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Semaphore
from typing import TypeVar

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Inputs, pieces
from sncl.training.learner import Learner
from sncl.training.parallel import SHARE
from sncl.training.predicting import EVALUATION_BATCH
from sncl.training.snapshot import Snapshot
from sncl.training.unchanged import are_known

MOST_THREADS = 4  # with so many, tests are a small part of any run
FEWEST_SAMPLES = 4 * EVALUATION_BATCH  # a copy of the network is not worth less

Logits = Callable[[Inputs, int], Tensor]
Found = TypeVar("Found")


class Cores:
    """Cores that predict with a snapshot. The caller's own is not among them while it has other things to do."""

    def __init__(self, snapshot: Snapshot, count: int) -> None:
        self._snapshot = snapshot
        self._free = Semaphore(count - 1)
        self._pool = ThreadPoolExecutor(count)
        self._beside = ThreadPoolExecutor(1)  # puts the parts together

    def logits(self, x: Inputs, task: int) -> Tensor:
        """The logits of test samples of a task."""
        return torch.cat(list(self._pool.map(partial(self._part, task), pieces(x, EVALUATION_BATCH))))

    def _part(self, task: int, x: Inputs) -> Tensor:
        with self._free:
            return self._snapshot.logits(x, task)

    def begin(self, predict: Callable[[Logits], Found]) -> Future[Found]:
        """Do beside the caller what takes predictions."""
        return self._beside.submit(predict, self.logits)

    def lend(self) -> None:
        """The caller waits from now on, so that its core is free, too."""
        self._free.release()

    def close(self) -> None:
        """Leave off, behind the parts that are predicted now."""
        self._pool.shutdown(cancel_futures=True)
        self._beside.shutdown()


def cores_for(learner: Learner, sizes: Sequence[int]) -> Cores | None:
    """The cores of this run that may predict test sets of these ``sizes`` as the learner is now, if there are several.

    A network of somebody else may not be called by several threads, so it is called by the caller's.
    """
    count = min(MOST_THREADS, SHARE.get() // torch.get_num_threads())
    shared = learner.device.type != "cpu" or learner.group is not None
    few = max(sizes, default=0) <= EVALUATION_BATCH or sum(sizes) < FEWEST_SAMPLES
    if count < 2 or few or shared or not are_known((learner.method, learner.net)):
        return None
    try:
        return Cores(learner.snapshot(), count)
    except SnclError:  # it cannot be copied, or has diverged, of which prediction tells more
        return None


@contextmanager
def predictions(learner: Learner, sizes: Sequence[int]) -> Iterator[Logits]:
    """A function that returns the logits of test samples of a task, for test sets of these ``sizes``."""
    cores = cores_for(learner, sizes)
    if cores is None:
        yield learner.logits
        return
    cores.lend()
    try:
        yield cores.logits
    finally:
        cores.close()
