"""Several threads with one learner: whatever they do, it is as if they had come one after the other."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sncl import ContinualClassifier, Learner, follow
from sncl.training.checkpoint import read_checkpoint, write_atomically

LEARNERS: dict[str, Callable[[], Learner]] = {
    "sncl with an average": lambda: make("sncl", ema=0.9),
    "derpp": lambda: make("derpp"),
    "derpp with an average": lambda: make("derpp", ema=0.9),
    "er with dropout": lambda: make("er", nn.Dropout(0.5)),
    "er with BatchNorm": lambda: make("er", nn.BatchNorm1d(32)),
}
STEPS, PREDICTORS = 60, 4


def make(method: str, layer: nn.Module | None = None, ema: float = 0.0, grow: bool = False) -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), layer or nn.Identity(), nn.ReLU(), nn.Linear(32, 4))
    return Learner(net, method, memory=20, replay=8, lr=0.1, device="cpu", ema=ema, grow=grow)


def batches(count: int = STEPS) -> list[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(4, (8,), generator=numbers)) for _ in range(count)]


def at_once(*works: Callable[[], object]) -> None:
    """Run each in a thread of its own, all at the same time; the first error is raised."""
    errors: list[BaseException] = []
    start = Barrier(len(works))

    def guarded(work: Callable[[], object]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def assert_same_state(ours: Learner, theirs: Learner) -> None:
    first, second = ours.state(), theirs.state()
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


@pytest.mark.parametrize("name", LEARNERS)
def test_predicting_beside_learning_is_exact(name: str) -> None:
    alone, shared = LEARNERS[name](), LEARNERS[name]()
    stream, probe = batches(), batches(1)[0][0]
    possible = {}  # logits between any two steps
    for number, batch in enumerate(stream):
        alone.learn(*batch)
        possible[alone.logits(probe).numpy().tobytes()] = number
    shared.learn(*stream[0])
    seen: list[list[bytes]] = [[] for _ in range(PREDICTORS)]
    learning = True

    def learn() -> None:
        nonlocal learning
        try:
            for batch in stream[1:]:
                shared.learn(*batch)
        finally:
            learning = False

    def predict(found: list[bytes]) -> None:
        while learning:
            found.append(shared.logits(probe).numpy().tobytes())

    at_once(learn, *(lambda found=found: predict(found) for found in seen))  # type: ignore[misc]
    assert_same_state(alone, shared)
    for found in seen:
        numbers = [possible.get(each, -1) for each in found]
        assert numbers == sorted(numbers) and -1 not in numbers
    assert torch.equal(alone.logits(probe), shared.logits(probe))


def test_what_is_done_to_a_learner_never_overlaps(tmp_path: Path) -> None:
    """Growing, masks, blocks as trained, states, saving and copies beside learning change nothing of it."""
    alone, shared, *others = (make("sncl", nn.Dropout(0.3), ema=0.9, grow=True) for _ in range(17))
    stream, probe = batches(), batches(1)[0][0]
    alone.learn(*stream[0])
    shared.learn(*stream[0])
    alone.grow(9)
    for batch in stream[1:]:
        alone.learn(*batch)

    def learn() -> None:
        shared.grow(9)
        for batch in stream[1:]:
            shared.learn(*batch)

    def look() -> None:
        for _ in range(15):
            with shared.as_trained():
                assert torch.equal(shared.logits(probe), shared.logits(probe))
            with shared.exclusively():
                assert torch.equal(shared.predict(probe), shared.logits(probe).argmax(1))

    def store() -> None:
        for other in others:
            shared.save(tmp_path / "saved")
            other.load(tmp_path / "saved")
            copy = deepcopy(shared)
            assert torch.equal(copy.logits(probe), pickle.loads(pickle.dumps(copy)).logits(probe))

    at_once(learn, look, store)
    assert_same_state(alone, shared)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("copied", [deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["copy", "pickle"])
def test_a_copy_has_a_lock_of_its_own_and_learns_on_exactly(name: str, copied: Callable[[Learner], Learner]) -> None:
    first = LEARNERS[name]()
    stream, probe = batches(20), batches(1)[0][0]
    for batch in stream[:10]:
        first.learn(*batch)
    with first.exclusively():
        copy = copied(first)
        at_once(lambda: copy.logits(probe))  # in another thread, which the lock of the first does not stop
    for batch in stream[10:]:
        first.learn(*batch)
        copy.learn(*batch)
    assert torch.equal(first.logits(probe), copy.logits(probe))
    assert_same_state(first, copy)


def test_following_beside_predicting_is_exact_and_ends(tmp_path: Path) -> None:
    alone, shared = make("sncl", ema=0.9), make("sncl", ema=0.9)
    stream, probe = batches(), batches(1)[0][0]
    for learner, path in ((alone, "alone"), (shared, "shared")):
        learner.prepare(probe)
        if learner is alone:
            list(follow(learner, stream, snapshot=tmp_path / path, every=5))

    def predict() -> None:
        for _ in range(100):
            with shared.predicting():
                shared.logits(probe)

    at_once(lambda: list(follow(shared, stream, snapshot=tmp_path / "shared", every=5)), predict, predict)
    assert_same_state(alone, shared)
    ours, theirs = (read_checkpoint(tmp_path / path)[0] for path in ("alone", "shared"))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_an_estimator_predicts_beside_learning() -> None:
    stream = [(x.numpy(), y.numpy()) for x, y in batches(40)]
    probe = stream[0][0]
    alone, shared = (ContinualClassifier("derpp", memory=20, ema=0.9, random_state=0) for _ in range(2))
    possible = set()
    for model in (alone, shared):
        model.partial_fit(*stream[0], classes=range(4))
    possible.add(alone.predict_proba(probe).tobytes())
    for batch in stream[1:]:
        possible.add(alone.partial_fit(*batch).predict_proba(probe).tobytes())

    def learn() -> None:
        for batch in stream[1:]:
            shared.partial_fit(*batch)

    def predict() -> None:
        for _ in range(100):
            assert shared.predict_proba(probe).tobytes() in possible
            assert len(shared.predict(probe)) == len(probe)

    def copy() -> None:
        for _ in range(5):
            assert deepcopy(shared).predict_proba(probe).tobytes() in possible

    at_once(learn, predict, predict, predict, predict, copy)
    assert np.array_equal(alone.predict_proba(probe), shared.predict_proba(probe))


def test_threads_that_write_one_file_leave_it_whole(tmp_path: Path) -> None:
    learners = [make("er") for _ in range(4)]
    for number, each in enumerate(learners):
        for batch in batches(number + 1):
            each.learn(*batch)
    path = tmp_path / "saved"
    learners[0].save(path)
    writing = [0] * len(learners)

    def save(number: int) -> None:
        try:
            for _ in range(40):
                learners[number].save(path)
        finally:
            writing[number] = 1

    def read() -> None:
        while not all(writing):
            tensors, description = read_checkpoint(path)
            expected = learners[description["steps"] - 1].state()
            assert all(torch.equal(value, tensors[name]) for name, value in expected.items())

    at_once(*(lambda number=number: save(number) for number in range(len(learners))), read)  # type: ignore[misc]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["saved", "saved.previous"]


def test_one_thread_does_not_touch_what_another_has_begun_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write to the same name at the same time; the slower one gets its content there too, complete."""
    fsync, met = os.fsync, Barrier(2)

    def together(file: int) -> None:
        fsync(file)
        met.wait(10)

    monkeypatch.setattr(os, "fsync", together)
    contents = [b"a" * 1000, b"b" * 10]
    at_once(*(lambda content=content: write_atomically(tmp_path / "file", content) for content in contents))  # type: ignore[misc]
    assert (tmp_path / "file").read_bytes() in contents
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
