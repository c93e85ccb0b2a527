"""SGD with momentum and weight decay: PyTorch's equations, part of the state, and off unless asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from blobs import CLASSES
from resuming import goes_on_exactly, same
from shipped import shipped
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.table import METHODS, Settings
from sncl.networks.resnet import ResNet18
from sncl.streams.augmentation import Strong
from sncl.tensors.random import generator
from sncl.training import recorded
from sncl.training.descent import Descending, Descent, scale_steps
from sncl.training.learner import Learner
from sncl.training.replaying import CallList

EVERY_NAME = pytest.mark.parametrize("name", list(METHODS))
FORCES: list[dict[str, float]] = [
    {"momentum": 0.9},
    {"weight_decay": 0.05},
    {"momentum": 0.9, "weight_decay": 0.05},
]


def parameters(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    draw = generator(0, "parameters")
    return [nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype)) for shape in ((3, 2), (4,), (), (2, 2))]


def with_gradients(values: list[nn.Parameter], step: int) -> list[nn.Parameter]:
    """Give parameters gradients of their own, and now and then one of them none; the last never has any."""
    draw = generator(step, "gradients")
    for number, value in enumerate(values):
        gradient = torch.randn(value.shape, generator=draw, dtype=value.dtype)
        value.grad = None if number == len(values) - 1 or (number + step) % 5 == 0 else gradient
    return values


@pytest.mark.parametrize("forces", [{}, *FORCES])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_update_is_that_of_torch(forces: dict[str, float], dtype: torch.dtype) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    groups = [[{"params": each[:2], "lr": 0.3}, {"params": each[2:], "lr": 0.1}] for each in (ours, theirs)]
    first, second = Descent(groups[0], **forces), torch.optim.SGD(groups[1], **forces)
    for step in range(12):
        with_gradients(ours, step), with_gradients(theirs, step)
        first.step(), second.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("forces", [{}, *FORCES])
def test_a_scaled_step_size_is_a_smaller_one(forces: dict[str, float]) -> None:
    """A power of two, so that no bit is lost; velocities are those of the whole step."""
    ours, theirs = parameters(), parameters()
    scaled = Descending(**forces, scaled=True)([{"params": ours, "lr": 0.5}])
    second = torch.optim.SGD(theirs, lr=0.5, **forces)
    for step in range(12):
        factor = 0.25 if step in (4, 5, 11) else 1.0
        scaled.scale_steps(factor)
        second.param_groups[0]["lr"] = 0.5 * factor
        with_gradients(ours, step), with_gradients(theirs, step)
        scaled.step(), second.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_step_size_that_is_fixed_cannot_be_scaled() -> None:
    fixed = Descent([{"params": parameters(), "lr": 0.5}])
    fixed.scale_steps(1.0)
    with pytest.raises(SnclError, match="without a scale"):
        fixed.scale_steps(0.1)


def test_without_momentum_there_is_no_state() -> None:
    assert Descent([{"params": parameters(), "lr": 0.5}], weight_decay=0.1).state_dict()["state"] == {}


# --- in a learner ------------------------------------------------------------------------------------------------


def go(subject: Learner, name: str, start: int, stop: int) -> None:
    """Learn batches, say where tasks end where that must be known, and go on where the stream is the same."""
    batches = shipped(name, {}).batches(16)
    for number in range(start, stop):
        subject.learn(*batches[number])
        if subject.method.needs_boundaries and number in (7, 15):
            task = batches[number - 7 : number + 1]
            subject.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def learner(name: str, **options: Any) -> Learner:
    return shipped(name, {}).learner(**options)


@EVERY_NAME
def test_neutral_values_are_plain_sgd(name: str) -> None:
    plain, neutral = learner(name), learner(name, momentum=0.0, weight_decay=0.0)
    go(plain, name, 0, 12), go(neutral, name, 0, 12)
    assert same(plain, neutral)
    assert not [key for key in plain.state() if key.startswith("optimizer/")]


@EVERY_NAME
@pytest.mark.parametrize("forces", FORCES)
def test_every_method_learns_as_with_the_optimiser_of_torch(name: str, forces: dict[str, float]) -> None:
    theirs = learner(name, optimizer=lambda groups: torch.optim.SGD(groups, **forces))
    ours, plain = learner(name, **forces), learner(name)
    for each in (ours, theirs, plain):
        go(each, name, 0, 12)
    weights = [torch.cat([value.detach().flatten() for value in each.net.parameters()]) for each in (ours, theirs)]
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], torch.cat([value.detach().flatten() for value in plain.net.parameters()]))


@EVERY_NAME
def test_every_method_with_momentum_decay_and_clipping_is_exact_to_resume(name: str, tmp_path: Path) -> None:
    def made(seed: int) -> Learner:
        return learner(name, seed=seed, momentum=0.9, weight_decay=0.01, clip=1.5)

    for stop in (6, 10):
        assert goes_on_exactly(made, lambda subject, start, stop: go(subject, name, start, stop), stop, 16, tmp_path)


@EVERY_NAME
def test_a_recorded_step_has_the_bits_of_the_step_as_it_is_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forces = {"momentum": 0.9, "weight_decay": 0.01, "clip": 1.5}
    replayed = learner(name, **forces)
    go(replayed, name, 0, 16)
    monkeypatch.setattr(recorded, "CALLS_BEFORE", 10**9)
    written = learner(name, **forces)
    go(written, name, 0, 16)
    assert same(replayed, written)


def test_a_step_that_is_replayed_reads_the_scale_and_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[CallList] = []

    class Counted(CallList):
        def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
            replays.append(self)
            return super().__call__(inputs)

    def learned() -> Learner:
        subject = learner("er", optimizer=Descending(momentum=0.9, scaled=True))
        subject.prepare(shipped("er", {}).batches(1)[0][0])
        for number in range(16):
            scale_steps(subject.ready.optimizer, 0.1 if number % 3 == 0 else 1.0)
            go(subject, "er", number, number + 1)
        return subject

    monkeypatch.setattr(recorded, "CallList", Counted)
    replayed = learned()
    assert len(replays) >= 8 and len(set(map(id, replays))) == 1
    monkeypatch.setattr(recorded, "CALLS_BEFORE", 10**9)
    assert same(replayed, learned())
    plain = learner("er", momentum=0.9)
    go(plain, "er", 0, 16)
    assert not same(plain, replayed)


def test_a_network_that_grows_keeps_its_velocities() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    subject = Learner(net, "derpp", memory=20, replay=8, device="cpu", momentum=0.9, grow=True)

    def batch(number: int, classes: int) -> tuple[Tensor, Tensor]:
        draw = generator(number, "growing")
        return torch.randn(8, 6, generator=draw), torch.randint(classes, (8,), generator=draw)

    for number in range(5):
        subject.learn(*batch(number, 2))
    before = subject.state()
    subject.grow(4)
    after = subject.state()
    moments = [name for name in before if name.startswith("optimizer/")]
    assert len(moments) == 4 and all(torch.equal(before[name], after[name]) for name in moments)
    added = [after[name] for name in after if name.startswith("optimizer/") and name not in before]
    assert len(added) == 2 and not any(each.any() for each in added)
    again = Learner(net_of(2), "derpp", memory=20, replay=8, device="cpu", momentum=0.9, grow=True)
    subject.learn(*batch(5, 4))
    again.restore(subject.state(), subject.description())
    for each in (subject, again):
        each.learn(*batch(6, 4))
    assert same(subject, again)


def net_of(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))


def test_velocities_outlive_the_end_of_a_task_where_a_method_adds_to_itself_there() -> None:
    subject = learner("hal", momentum=0.9)
    go(subject, "hal", 0, 7)
    batch = shipped("hal", {}).batches(16)[7]
    subject.learn(*batch)
    before = {name: value for name, value in subject.state().items() if name.startswith("optimizer/")}
    subject.boundary(*batch)
    after = subject.state()
    assert before and all(value.any() for value in before.values())
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_checkpoint_with_another_momentum_is_refused(tmp_path: Path) -> None:
    first = learner("er", momentum=0.9)
    go(first, "er", 0, 2)
    first.save(tmp_path / "a")
    for options in ({}, {"momentum": 0.5}, {"optimizer": torch.optim.Adam}):
        with pytest.raises(SnclError, match=r"'momentum': 0\.9"):
            learner("er", **options).load(tmp_path / "a")


@pytest.mark.parametrize("momentum", [-0.1, 1.0, math.nan, "0.9", True])
def test_a_momentum_that_is_none_is_refused(momentum: Any) -> None:
    with pytest.raises(SnclError, match="`momentum` is"):
        learner("er", momentum=momentum)


@pytest.mark.parametrize("decay", [-0.1, math.inf, math.nan, "much"])
def test_a_decay_that_is_none_is_refused(decay: Any) -> None:
    with pytest.raises(SnclError, match="`weight_decay` is"):
        learner("er", weight_decay=decay)


@pytest.mark.parametrize("forces", FORCES)
def test_another_optimiser_has_settings_of_its_own(forces: dict[str, float]) -> None:
    with pytest.raises(SnclError, match="`optimizer` is another; give it there"):
        learner("er", optimizer=torch.optim.Adam, **forces)


# --- on images, with everything at once --------------------------------------------------------------------------

STRONG = Strong(1, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def on_images(subject: Learner, start: int, stop: int) -> None:
    """Learn bytes, with a smaller step size from the tenth batch on, and say where the tasks end."""
    batches = []
    for number in range(14):
        draw = generator(number, "on images")
        y = torch.randint(2, (6,), generator=draw) + 2 * (number >= 7)
        batches.append((torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8, generator=draw), y))
    for number in range(start, stop):
        if number >= 10:
            scale_steps(subject.ready.optimizer, 0.1)
        subject.learn(*batches[number])
        if subject.method.needs_boundaries and number in (6, 13):
            x, y = (torch.cat(each) for each in zip(*batches[number - 6 : number + 1], strict=True))
            subject.boundary(x, y)


@EVERY_NAME
def test_every_method_with_every_setting_of_training_is_exact_to_resume(name: str, tmp_path: Path) -> None:
    def made(seed: int) -> Learner:
        torch.manual_seed(0)
        optimizer = Descending(momentum=0.9, weight_decay=0.01, scaled=True)
        quick: Settings = {"ace": 1, "anchor_steps": 2}
        method = shipped(name, {key: value for key, value in quick.items() if key in METHODS[name].settings})
        net = ResNet18(CLASSES, width=2)
        return method.learner(net, seed=seed, optimizer=optimizer, clip=2.0, transform=STRONG, replay=12)

    for stop in (4, 11):
        assert goes_on_exactly(made, on_images, stop, 14, tmp_path)
