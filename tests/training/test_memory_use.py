"""A live stream may go on for ever: what has passed is not kept, and what is not needed is not loaded."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sncl.methods.table import METHODS, make
from sncl.training.follow import follow
from sncl.training.items import Item, Late
from sncl.training.learner import Learner

ROWS, PENDING = 6, 12

RECORDED = """
import sys, torch
from sncl import Learner
from sncl.training import recorded
kept, record = [], recorded.record
recorded.record = lambda *given: kept.append(record(*given)) or kept[-1]
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
learner = Learner(net, "er", replay=6, device="cpu")
for _ in range(8):
    learner.learn(torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
assert kept and None not in kept
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def held() -> int:
    """The bytes of all tensors there are, without those of a compiler, which have none."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) in (Tensor, nn.Parameter)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def batches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    for _ in range(count):
        x = torch.rand(ROWS, 4, generator=draw)
        yield x, x[:, :3].argmax(1)


@pytest.mark.parametrize("name", [name for name in METHODS if not make(name).needs_boundaries])
def test_learning_keeps_nothing_of_what_has_passed(name: str) -> None:
    learner = Learner(network(), name, memory=20, device="cpu")
    found = []
    for number, (x, y) in enumerate(batches(60), 1):
        learner.learn(x, y)
        if number % 20 == 0:
            learner.watch.look()  # losses of the last steps
            found.append(held())
    assert found[1] == found[2]


def test_following_keeps_no_more_samples_than_may_wait() -> None:
    def items() -> Iterator[Any]:
        for number, (x, y) in enumerate(batches(90)):
            ids = [f"{number} {row}" for row in range(ROWS)]
            yield from ((x, y), Item(x, ids=ids), x + 1)
            if number % 2:
                yield Late(ids, y)

    learner = Learner(network(), "er", memory=20, device="cpu")
    found = []
    for number, answer in enumerate(follow(learner, items(), pending=PENDING), 1):
        assert answer.late.waiting <= PENDING
        if number % 105 == 0:
            del answer
            found.append(held())
    assert len(found) == 3 and found[1] == found[2]


def test_recording_a_step_does_not_load_the_compiler() -> None:
    """It takes seconds and 70 MB."""
    done = subprocess.run([sys.executable, "-c", RECORDED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
