"""Snapshots: what a learner predicted at a moment, whatever it learns behind it and in however many threads."""

from __future__ import annotations

import pickle
from copy import deepcopy
from threading import Barrier, Event, Thread

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sncl import Learner, SNCLClassifier, SnclError
from sncl.methods.table import METHODS
from sncl.networks.mlp import MLP
from sncl.streams.standardisation import RunningScale


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(4, (8,), generator=numbers)) for _ in range(count)]


def make(method: str = "sncl", layer: nn.Module | None = None, ema: float = 0.0, grow: bool = False) -> Learner:
    torch.manual_seed(0)
    net: nn.Module = nn.Sequential(nn.Linear(6, 32), deepcopy(layer) or nn.Identity(), nn.ReLU(), nn.Linear(32, 4))
    if method == "pnn":  # which knows two networks only
        net = MLP(6, 4, width=8)
    return Learner(net, method, memory=20, replay=8, lr=0.1, device="cpu", ema=ema, grow=grow)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_predicts_the_same_bits_and_goes_on_as_without(name: str) -> None:
    ours, twin = make(name), make(name)
    stream = batches(8)
    probe = stream[0][0]
    task = 0 if ours.method.needs_task_at_test else None
    snapshots, logits = [], []
    for number, (x, y) in enumerate(stream):
        ours.learn(x, y)
        twin.learn(x, y)
        if number == 4 and ours.method.needs_boundaries:
            for each in (ours, twin):
                each.boundary(torch.cat([x for x, _ in stream]), torch.cat([y for _, y in stream]))
        snapshots.append(ours.snapshot())
        logits.append(twin.logits(probe, task))
    assert len({each.numpy().tobytes() for each in logits}) > 1  # something was learned in between
    for snapshot, expected in zip(snapshots, logits, strict=True):
        assert torch.equal(snapshot.logits(probe, task), expected)
        assert torch.equal(snapshot.predict(probe, task), expected.argmax(1))
        assert torch.equal(snapshot.predict_proba(probe, task), expected.softmax(1))
    assert all(torch.equal(value, twin.state()[name]) for name, value in ours.state().items())


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(32)], ids=["dropout", "norm"])
@pytest.mark.parametrize("method", ["sncl", "icarl", "er"])
def test_threads_predict_beside_learning_without_waiting_for_it(method: str, layer: nn.Module) -> None:
    """Predictions stay what they were, also while a step is under way, and learning ends with the same bits."""
    average = 0.0 if method == "icarl" else 0.9
    alone, shared = make(method, layer, average), make(method, layer, average)
    stream = batches(25)
    for learner in (alone, shared):
        for batch in stream[:10]:
            learner.learn(*batch)
        learner.boundary(torch.cat([x for x, _ in stream[:10]]), torch.cat([y for _, y in stream[:10]]))
    snapshot, probe = shared.snapshot(), stream[0][0]
    expected = shared.logits(probe).numpy().tobytes()
    learned, start, found = Event(), Barrier(5), []

    def predict() -> None:
        start.wait()
        while not learned.is_set():
            found.append(snapshot.logits(probe).numpy().tobytes())
        found.append(snapshot.logits(probe).numpy().tobytes())

    predictors = [Thread(target=predict) for _ in range(4)]
    for each in predictors:
        each.start()
    start.wait()
    for batch in stream[10:]:
        shared.learn(*batch)
        alone.learn(*batch)
    learned.set()
    for each in predictors:
        each.join()
    assert len(found) >= 4 and set(found) == {expected}
    assert all(torch.equal(value, alone.state()[name]) for name, value in shared.state().items())
    assert shared.logits(probe).numpy().tobytes() != expected


def test_a_snapshot_answers_while_the_learner_is_held() -> None:
    learner, (x, y) = make(), batches(1)[0]
    learner.learn(x, y)
    snapshot, answers = learner.snapshot(), []
    with learner.exclusively():
        other = Thread(target=lambda: answers.append(snapshot.predict(x)))
        other.start()
        other.join(timeout=30)
        assert not other.is_alive()
    assert torch.equal(answers[0], learner.predict(x))


def test_a_snapshot_keeps_outputs_classes_and_a_scale_that_change() -> None:
    torch.manual_seed(0)
    scale = RunningScale(6)
    learner = Learner(nn.Sequential(nn.Linear(6, 4)), "er", memory=20, transform=scale, device="cpu", grow=True)
    (x, y), *_ = batches(1)
    scale.update(x)
    learner.learn(x, y)
    snapshot, before = learner.snapshot(), learner.logits(x)
    scale.update(x * 50)
    learner.learn(x * 50, y + 5)
    assert learner.logits(x).shape == (8, int(y.max()) + 6)
    assert torch.equal(snapshot.logits(x), before) and snapshot.outputs == 4

    model = SNCLClassifier(random_state=0).partial_fit(x.numpy(), y.numpy())
    before = model.learner_.logits(x)
    frozen = model.learner_.snapshot()
    model.partial_fit(x.numpy() * 9, y.numpy())
    assert torch.equal(frozen.logits(x), before)


def test_a_snapshot_is_told_like_the_learner_what_does_not_fit() -> None:
    learner = make()
    with pytest.raises(SnclError, match="not learned anything yet"):
        learner.snapshot()
    learner.learn(*batches(1)[0])
    snapshot = learner.snapshot()
    with pytest.raises(SnclError, match=r"got \[2, 5\]"):
        snapshot.predict(torch.zeros(2, 5))
    with pytest.raises(SnclError, match="NaN"):
        snapshot.predict(torch.full((2, 6), torch.nan))
    assert snapshot.predict(np.zeros((2, 6))).shape == (2,)  # and goes on


def test_a_network_that_cannot_be_copied_has_none() -> None:
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("only one of me")

    learner = Learner(Stubborn(6, 4), "er", device="cpu", memory=5)
    learner.learn(*batches(1)[0])
    with pytest.raises(SnclError, match=r"cannot be copied.*only one of me.*with the learner itself"):
        learner.snapshot()
    assert learner.predict(batches(1)[0][0]).shape == (8,)


def test_a_snapshot_is_small_and_can_be_pickled() -> None:
    learner, (x, y) = make("lwf"), batches(1)[0]
    learner.learn(x, y)
    learner.boundary(x, y)
    snapshot = learner.snapshot()
    snapshot.predict(x)
    content = pickle.dumps(snapshot)
    again = pickle.loads(content)
    assert torch.equal(again.logits(x), snapshot.logits(x))
    numbers = sum(parameter.numel() for parameter in learner.net.parameters())
    assert len(content) < 8 * 4 * numbers + 16_384  # neither the old network of the method nor its memory
    assert repr(again) == "Snapshot(Sequential with 356 parameters, LwF, 4 outputs, after 1 step, cpu)"
