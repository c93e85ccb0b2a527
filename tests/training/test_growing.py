"""Classes that come later: every method gets outputs for them without losing anything, and resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from blobs import FEATURES, batches
from resuming import same
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.methods.table import METHODS, make
from sncl.networks.mlp import MLP
from sncl.networks.output import Wider
from sncl.training.learner import Learner

GROWING = [name for name in METHODS if make(name).grows]
SETTINGS: dict[str, Any] = {"mer": {"gamma": 0.5, "inner": 2}, "hal": {"anchor_steps": 3}}
EVERY = pytest.mark.parametrize("name", GROWING)


def learner(name: str, seed: int = 0, outputs: int = 2, **options: Any) -> Learner:
    torch.manual_seed(0)
    net = MLP(FEATURES, outputs, width=16)
    method = make(name, SETTINGS.get(name))
    return Learner(net, method, memory=20, replay=8, lr=0.05, seed=seed, device="cpu", grow=True, **options)


def feed(subject: Learner, rows: list[tuple[Tensor, Tensor]], start: int = 0, stop: int | None = None) -> None:
    """The two tasks of the blobs, whose classes 2 and 3 come in the second; the first batch of it has class 2 only."""
    half = len(rows) // 2
    for number in range(start, len(rows) if stop is None else stop):
        x, y = rows[number]
        subject.learn(x, y.clamp(max=2) if number == half else y)
        if subject.method.needs_boundaries and number + 1 in (half, len(rows)):
            task = rows[:half] if number < half else rows[half:]
            subject.boundary(
                torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]).clamp(max=subject.outputs - 1)
            )


@EVERY
def test_growing_changes_no_old_logit_weight_or_moment(name: str) -> None:
    subject = learner(name, optimizer=torch.optim.Adam)
    rows = batches(12)
    feed(subject, rows, stop=6)
    x = torch.cat([x for x, _ in rows])
    before, logits, answers = subject.state(), subject.net(x).logits.detach(), subject.logits(x)
    moments = [value for key, value in before.items() if key.startswith("optimizer/")]
    subject.grow(5)
    subject.grow(3)  # fewer: nothing happens
    assert (subject.outputs, subject.grown) == (5, [5])
    with torch.no_grad():
        if name != "sncl":  # whose gates draw noise in training
            assert torch.equal(subject.net(x).logits[:, :2], logits)
    after = subject.logits(x)
    assert after.shape == (len(x), 5) and torch.equal(after[:, :2], answers)
    body = subject.net.body
    assert isinstance(body, MLP) and isinstance(body.head, Wider)
    now = subject.state()
    for key, value in before.items():
        place = key.replace("network/head.", "network/head.parts.0.")
        if key.startswith(("network/", "random/", "memory/")) and key != "memory/rows/logits":
            assert torch.equal(now[place], value), key
    later = [value for key, value in now.items() if key.startswith("optimizer/")]
    assert len(later) == len(moments) and all(torch.equal(a, b) for a, b in zip(later, moments, strict=True))


@EVERY
@pytest.mark.parametrize(("stop", "optimizer"), [(5, torch.optim.Adam), (6, None), (7, torch.optim.Adam)])
def test_saving_and_loading_around_growth_changes_nothing(name: str, stop: int, optimizer: Any, tmp_path: Path) -> None:
    rows = batches(12)
    unbroken, first, second = (learner(name, seed, optimizer=optimizer) for seed in (0, 0, 9))
    feed(unbroken, rows)
    assert unbroken.grown == [3, 4]
    feed(first, rows, stop=stop)
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    assert (second.outputs, second.grown) == (first.outputs, first.grown)
    feed(second, rows, start=stop)
    assert same(unbroken, second)


@EVERY
def test_new_classes_are_learned(name: str) -> None:
    subject = learner(name)
    rows = batches(40)
    feed(subject, rows, stop=len(rows) - 1)
    subject.learn(*rows[-1])
    x, y = (torch.cat(parts) for parts in zip(*rows[20:], strict=True))
    if getattr(subject.method, "ace", 0):  # against old classes they are learned by replay alone, which takes longer
        assert (subject.logits(x)[:, 2:].argmax(1) + 2 == y).float().mean() > 0.9
    elif type(subject.method).predict is Method.predict or name == "lwf":  # iCaRL answers by the last boundary
        assert (subject.predict(x) == y).float().mean() > 0.9


def test_replay_keeps_old_classes_while_new_ones_come() -> None:
    for name in ("er", "derpp", "sncl"):
        subject = learner(name)
        rows = batches(60)
        feed(subject, rows)
        x, y = (torch.cat(parts) for parts in zip(*rows[:30], strict=True))
        assert (subject.predict(x) == y).float().mean() > 0.8


@pytest.mark.parametrize("name", ["der", "derpp", "sncl"])
def test_remembered_logits_of_new_classes_are_the_lowest_there_are(name: str) -> None:
    subject = learner(name)
    feed(subject, batches(12), stop=6)
    assert subject.memory is not None
    before = subject.memory.fields["logits"].clone()
    subject.grow(4)
    after = subject.memory.fields["logits"]
    assert torch.equal(after[:, :2], before) and torch.equal(after[:, 2:], before.min().expand(20, 2))


def test_gates_and_remembered_features_are_untouched() -> None:
    subject = learner("sncl")
    feed(subject, batches(12), stop=6)
    before = {name: value.clone() for name, value in subject.state().items() if "gate" in name or "features" in name}
    assert before
    subject.grow(9)
    assert all(torch.equal(subject.state()[name], value) for name, value in before.items())


def test_weights_that_matter_keep_their_importance() -> None:
    """Growth in the middle of the vector: the head is not the last module of this network."""

    class HeadFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.hidden = nn.Linear(5, 2), nn.Linear(FEATURES, 5)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.hidden(x).relu())
            return logits

    for name, kept in (("oewc", "fisher"), ("si", "importance")):
        torch.manual_seed(0)
        subject = Learner(HeadFirst(), name, device="cpu", grow=True)
        feed(subject, batches(12), stop=6)
        before = getattr(subject.method, kept).clone()
        subject.grow(3)
        after = getattr(subject.method, kept)
        assert torch.equal(torch.cat([after[:12], after[24:]]), before) and not after[12:24].any() and before.any()


def test_options_of_an_optimiser_that_were_changed_stay() -> None:
    made: list[torch.optim.Optimizer] = []

    def adam(groups: Any) -> torch.optim.Optimizer:
        made.append(torch.optim.Adam(groups))
        return made[-1]

    subject = learner("er", optimizer=adam)
    feed(subject, batches(4), stop=2)
    made[-1].param_groups[0]["lr"] = 0.007
    subject.grow(3)
    assert len(made) == 2 and made[-1].param_groups[0]["lr"] == 0.007


@pytest.mark.parametrize("name", ["sgd", "derpp", "oewc", "lwf", "hal"])
def test_classes_that_come_one_by_one_make_few_layers_and_start_at_zero(name: str) -> None:
    subject = learner(name, outputs=1, optimizer=torch.optim.Adam)
    x = batches(1)[0][0]
    for classes in range(1, 10):
        subject.learn(x, torch.arange(8) % classes)
        before = subject.net.body(x).shape[1]
        subject.grow(classes + 1)
        body = subject.net.body
        assert isinstance(body, MLP) and before == classes
        assert not body.eval()(x)[:, classes:].any()
        body.train()
    assert isinstance(body.head, Wider)
    assert [part.weight.shape[0] for part in body.head.parts] == [1, 1, 2, 4, 8]


def test_what_cannot_grow_says_so(tmp_path: Path) -> None:
    x, y = batches(2)[0]
    with pytest.raises(SnclError, match="PNN cannot get outputs for new classes"):
        learner("pnn")
    fixed = Learner(MLP(FEATURES, 2), "er", device="cpu")
    fixed.learn(x, y)
    with pytest.raises(SnclError, match=r"outputs are fixed; make it with grow=True"):
        fixed.grow(3)
    with pytest.raises(SnclError, match=r"label 2 does not fit a network with 2 outputs.*new classes need grow=True"):
        fixed.learn(x, y + 1)
    subject = learner("er")
    with pytest.raises(SnclError, match=r"label 1002 does not fit a network with 2 outputs: number the classes"):
        subject.learn(x, y + 1001)
    with pytest.raises(SnclError, match="label -1 does not fit"):
        subject.learn(x, y - 1)
    with pytest.raises(SnclError, match="cannot be added to this network"):
        Learner(nn.Sequential(nn.Linear(FEATURES, 2), nn.Softmax(1)), "er", device="cpu", grow=True).learn(x, y)
    subject.grow(4)
    subject.save(tmp_path / "grown")
    with pytest.raises(SnclError, match="make it with grow=True"):
        Learner(MLP(FEATURES, 2, 16), "er", memory=20, device="cpu").load(tmp_path / "grown")
    other = learner("er")
    other.prepare(x)
    other.grow(3)
    with pytest.raises(SnclError, match=r"another learner: its outputs grew to \[4\], here \[3\]"):
        other.load(tmp_path / "grown")
