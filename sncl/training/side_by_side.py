"""Test sets predicted on all cores that a run has, some hundred samples on each: the same bits, sooner.

A run trains on one core or as many as it is told to (``threads``), since how a sum is split among them moves its last
bits. Its tests are other: every part of a test set is predicted by itself, so it may be done anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.tensors.fields import Inputs, pieces
from sncl.training.learner import Learner
from sncl.training.parallel import SHARE
from sncl.training.predicting import EVALUATION_BATCH
from sncl.training.unchanged import are_known

MOST_THREADS = 4  # with so many, tests are a small part of any run
FEWEST_SAMPLES = 4 * EVALUATION_BATCH  # a copy of the network is not worth less


@contextmanager
def predictions(learner: Learner, sizes: Sequence[int]) -> Iterator[Callable[[Inputs, int], Tensor]]:
    """A function that returns the logits of test samples of a task, for test sets of these ``sizes``.

    A network of somebody else may not be called by several threads, so it is called by this one.
    """
    threads = min(MOST_THREADS, SHARE.get() // torch.get_num_threads())
    shared = learner.device.type != "cpu" or learner.group is not None
    few = max(sizes, default=0) <= EVALUATION_BATCH or sum(sizes) < FEWEST_SAMPLES
    if threads < 2 or few or shared or not are_known((learner.method, learner.net)):
        yield learner.logits
        return
    try:
        snapshot = learner.snapshot()
    except SnclError:  # it cannot be copied, or has diverged, of which prediction tells more
        yield learner.logits
        return
    with ThreadPoolExecutor(threads) as pool:

        def logits(x: Inputs, task: int) -> Tensor:
            return torch.cat(list(pool.map(partial(snapshot.logits, task=task), pieces(x, EVALUATION_BATCH))))

        yield logits
