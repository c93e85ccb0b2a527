"""Labels that come later: they count for the prediction that was made when their sample came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from resuming import same
from torch import Tensor, nn

from sncl import Item, Late, Learner, SnclError, follow
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.follow import Position
from sncl.training.pending import LateCount


def learner(method: str = "er") -> Learner:
    torch.manual_seed(0)
    return Learner(
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), method, memory=20, lr=0.1, device="cpu"
    )


def in_turn(count: int, size: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Samples whose classes come one after the other: a prediction made late is better than one made in time."""
    numbers = torch.Generator().manual_seed(3)
    found = []
    for step in range(count):
        y = torch.full((size,), step // 15 % 3)
        found.append((torch.eye(4)[y] + 0.3 * torch.randn(size, 4, generator=numbers), y))
    return found


def delayed(stream: list[tuple[Tensor, Tensor]], delay: int, ids: bool) -> Iterator[Any]:
    """Each sample without its label, and so many samples later the label."""
    for number, (x, _) in enumerate(stream + [(None, None)] * delay):  # type: ignore[list-item]
        if x is not None:
            yield Item(x, ids=[f"sample {number}"]) if ids else (x, None)
        if number >= delay:
            then, y = stream[number - delay]
            yield Late([f"sample {number - delay}"], y) if ids else (then, y)


@pytest.mark.parametrize("ids", [True, False], ids=["by id", "without ids"])
def test_what_counts_is_the_prediction_that_was_made(ids: bool) -> None:
    stream, ours, by_hand = in_turn(120), learner(), learner()
    answers = list(follow(ours, delayed(stream, 20, ids)))
    said: list[Tensor] = []
    again = 0
    for number in range(len(stream) + 20):
        if number < len(stream):
            by_hand.prepare(stream[number][0])
            said.append(by_hand.predict(stream[number][0]))
        if number >= 20:
            x, y = stream[number - 20]
            again += int((by_hand.predict(x) == y).sum())
            by_hand.learn(x, y)
    right = sum(int((guess == y).sum()) for guess, (_, y) in zip(said, stream, strict=True))
    assert again > right  # which used to be counted
    assert answers[-1].accuracy == right / len(stream)
    assert same(ours, by_hand)
    assert answers[-1].late == LateCount(0, 0, 0)
    assert answers[-1].position == Position(240, 120 if ids else 240, None)
    if ids:
        late = [answer for answer in answers if answer.losses]
        assert [int(answer.predicted[0]) for answer in late] == [int(each[0]) for each in said]
        assert answers[50].late.waiting == 21  # 35 came, and the labels of 15


def test_labels_come_in_any_order_in_batches_and_beside_known_ones() -> None:
    x, _ = in_turn(1, size=6)[0]
    known = torch.tensor([0, -1, 1, -1, -1, -1])
    ours, by_hand = learner(), learner()
    source = [
        Item(x, known, ids=np.arange(6), token="first"),
        Late([5, 77, 1], [2, 0, 1], token="second"),
        Late(torch.tensor([3]), 0),
    ]
    first, second, third = follow(ours, source)
    by_hand.prepare(x)
    guess = by_hand.predict(x)
    by_hand.learn(x[[0, 2]], torch.tensor([0, 1]))
    by_hand.learn(x[[5, 1]], torch.tensor([2, 1]))
    by_hand.learn(x[[3]], torch.tensor([0]))
    assert same(ours, by_hand)
    assert (first.late, second.late, third.late) == (LateCount(4), LateCount(2, 0, 1), LateCount(1, 0, 1))
    assert torch.equal(second.predicted, guess[[5, 1]])
    labels = torch.tensor([0, 1, 1, 0, -1, 2])
    assert third.accuracy == float((guess == labels)[[0, 1, 2, 3, 5]].double().mean())
    assert third.position == Position(3, 6, "second")


def test_the_oldest_are_forgotten_and_counted() -> None:
    stream = in_turn(12)
    source: list[Any] = [Item(x, ids=[number]) for number, (x, _) in enumerate(stream)]
    source += [Late(list(range(12)), torch.cat([y for _, y in stream]))]
    ours = learner()
    answers = list(follow(ours, source, pending=5))
    assert answers[-2].late == LateCount(5, 7, 0) and answers[-1].late == LateCount(0, 7, 7)
    by_hand = learner()
    by_hand.prepare(stream[0][0])
    by_hand.learn(torch.cat([x for x, _ in stream[7:]]), torch.cat([y for _, y in stream[7:]]))
    assert same(ours, by_hand)
    (big, y), *_ = in_turn(1, size=8)  # more at once than may wait
    *_, last = follow(learner(), [Item(big, ids=list("abcdefgh")), Late(list("abcdefgh"), y)], pending=3)
    assert last.late == LateCount(0, 5, 5) and len(last.predicted) == 3


@pytest.mark.parametrize("ids", [True, False], ids=["by id", "without ids"])
def test_a_restart_anywhere_goes_on_as_without_one(ids: bool, tmp_path: Path) -> None:
    items = list(delayed(in_turn(30), 8, ids))
    unbroken = learner("sncl")
    expected = list(follow(unbroken, items))
    for stop in (1, 9, 10, 23, 37):
        path = tmp_path / f"{stop}"
        first = follow(learner("sncl"), items, snapshot=path, every=1)
        for _ in range(stop):
            next(first)
        first.close()
        ours = learner("sncl")
        rest = list(follow(ours, lambda position: items[position.batches :], snapshot=path, every=7))
        assert len(rest) == len(items) - stop
        assert same(ours, unbroken)
        for answer, other in zip(rest, expected[stop:], strict=True):
            assert torch.equal(answer.predicted, other.predicted)
            assert (answer.accuracy, answer.recent, answer.late) == (other.accuracy, other.recent, other.late)


PROCESS = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from test_late_labels import delayed, in_turn, learner
from sncl import follow
items = list(delayed(in_turn(40), 8, True))
for answer in follow(learner(), lambda position: items[position.batches:], snapshot=sys.argv[1], every=3):
    print(answer.position.batches, answer.accuracy, *answer.late, flush=True)
"""


def test_killed_processes_lose_no_label(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "live"), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line.split()[0]) == 31:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    *_, last = follow(learner(), delayed(in_turn(40), 8, True))
    assert done.stdout.splitlines()[-1] == f"80 {last.accuracy} 0 0 0"
    assert int(done.stdout.split()[0]) in (31, 34, 37, 40, 43)  # behind a snapshot, which may hold what was not printed


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Item(torch.zeros(2, 4), ids=["a"]), "one for each sample: got 1 for 2 samples"),
        (Item(torch.zeros(2, 4), ids=["a", "a"]), "two samples of a batch have the same one"),
        (Item(torch.zeros(1, 4), ids=["there"]), "the id 'there' is that of a sample that waits"),
        (Item(torch.zeros(1, 4), ids=[None]), "texts or whole numbers, one for each sample, not NoneType"),
        (Item(torch.zeros(1, 4), ids=[1.5]), "not float"),
        (Late(["there"], [-1]), "late labels are 0, 1, 2"),
        (Late(["there"], [float("nan")]), "late labels are 0, 1, 2"),
        (Late(["there"], [0, 1]), "got 2 for 1 ids"),
        (Late(["there", "there"], [0, 1]), "two late labels have the same one"),
        (Late(["there"], [9]), "label 9 does not fit"),
    ],
)
def test_what_is_refused_leaves_what_waits(item: Any, said: str) -> None:
    x = torch.ones(1, 4)
    source = [Item(x, ids=["there"]), item, Late(["there"], [2])]
    with pytest.raises(SnclError, match=said):
        list(follow(learner(), source))
    first, refused, last = follow(learner(), source, skip_bad=True)
    assert said.partition("(")[0] in str(refused.refused) and refused.late == first.late == LateCount(1)
    assert last.late == LateCount() and torch.equal(last.predicted, first.predicted)


@pytest.mark.parametrize(
    "row", [torch.zeros(4), np.zeros(4), np.zeros((3, 8, 8), dtype=np.float32)], ids=["tensor", "array", "image"]
)
def test_an_unlabelled_single_row_may_come_first(row: Any) -> None:
    net = nn.Sequential(nn.Linear(4, 3)) if row.ndim == 1 else nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten())
    subject = Learner(net, "er", memory=5, device="cpu")
    first, second, third = follow(subject, [row, (row, None), (row, 1)])
    assert len(first.predicted) == len(second.predicted) == len(third.predicted) == 1
    assert third.position.rows == 3 and subject.steps == 1


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    x, path = torch.randn(4, 4), tmp_path / "live"
    list(follow(learner(), [Item(x, ids=list("abcd")), (x + 1, None)], snapshot=path))
    tensors, description = read_checkpoint(path)
    waiting = description["follow"]["waiting"]
    assert waiting["ids"] == list("abcd") and torch.equal(tensors["waiting/late/x"], x)
    for changed in (
        {"ids": ["a"]},
        {"ids": ["a", "a", "b", "c"]},
        {"ids": [1, 2, 3, None]},
        {"ids": 3},
        {"forgotten": "many"},
    ):
        followed = description["follow"] | {"waiting": waiting | changed}
        write_checkpoint(path, tensors, description | {"follow": followed})
        with pytest.raises(SnclError, match="damaged"):
            list(follow(learner(), [], snapshot=path))
    write_checkpoint(path, tensors | {"waiting/asked": torch.zeros(3)}, description)
    with pytest.raises(SnclError, match="damaged"):
        list(follow(learner(), [], snapshot=path))


def test_pending_is_a_number() -> None:
    for wrong in (-1, "many", 1.5):
        with pytest.raises(SnclError, match="`pending` is how many samples may wait"):
            follow(learner(), [], pending=wrong)  # type: ignore[arg-type]
