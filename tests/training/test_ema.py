"""The average of the weights that a learner may predict with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from sncl.errors import SnclError
from sncl.networks.pruning.prune import prune
from sncl.training.learner import Learner


def learner(ema: float, method: str = "derpp") -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return Learner(net, method, memory=20, replay=8, lr=0.2, device="cpu", ema=ema)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 4, generator=numbers), torch.randint(3, (8,), generator=numbers)) for _ in range(count)]


def test_predictions_are_those_of_the_averaged_weights() -> None:
    averaged, plain = learner(0.7), learner(0.0)
    x = torch.randn(5, 4)
    slow: dict[str, torch.Tensor] = {}
    for number, batch in enumerate(batches(12), 1):
        for each in (averaged, plain):
            if not slow:
                each.prepare(batch[0])
        slow = slow or {name: value.clone() for name, value in plain.net.body.state_dict().items()}
        averaged.learn(*batch)
        plain.learn(*batch)
        keep = min(0.7, (1 + number) / (10 + number))
        for name, value in plain.net.body.state_dict().items():
            slow[name] = keep * slow[name] + (1 - keep) * value if value.is_floating_point() else value
        with averaged.as_trained():
            assert torch.equal(averaged.logits(x), plain.logits(x))  # training never sees the average
    body = plain.net.body
    body.load_state_dict(slow)
    torch.testing.assert_close(averaged.logits(x), plain.logits(x))


def test_the_average_is_saved_and_goes_on_exactly(tmp_path: Path) -> None:
    unbroken, first, second = (learner(0.9, "sncl") for _ in range(3))
    stream = batches(20)
    for batch in stream:
        unbroken.learn(*batch)
    for batch in stream[:11]:
        first.learn(*batch)
    first.save(tmp_path / "saved")
    second.load(tmp_path / "saved")
    for batch in stream[11:]:
        second.learn(*batch)
    ours, theirs = unbroken.state(), second.state()
    assert any(name.startswith("ema/") for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours) and ours.keys() == theirs.keys()


def test_the_average_goes_on_when_the_outputs_grow(tmp_path: Path) -> None:
    torch.manual_seed(0)
    growing = Learner(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        "er",
        memory=20,
        device="cpu",
        ema=0.99,
        grow=True,
    )
    for batch in batches(8):
        growing.learn(*batch)
    x = torch.randn(5, 4)
    before = growing.logits(x)
    growing.grow(5)
    assert torch.equal(growing.logits(x)[:, :3], before)
    with growing.as_trained():
        assert not torch.equal(growing.logits(x)[:, :3], before)


def test_what_predicts_can_be_pruned() -> None:
    averaged = learner(0.9, "sncl")
    for batch in batches(8):
        averaged.learn(*batch)
    x = torch.randn(5, 4)
    with averaged.predicting():
        small = prune(averaged.net, x)
    with torch.no_grad():
        torch.testing.assert_close(small(x), averaged.logits(x))
        averaged.settle()
        torch.testing.assert_close(averaged.net.eval()(x).logits, small(x))


def test_what_cannot_be_averaged_is_refused(tmp_path: Path) -> None:
    for value in (-0.1, 1.0):
        with pytest.raises(
            SnclError, match=r"`ema` is 0 \(off\) or the part of the average that each step keeps, below 1"
        ):
            learner(value)
    with pytest.raises(SnclError, match="ICaRL stores what its network said in training: use `ema=0`"):
        learner(0.9, "icarl")
    averaged = learner(0.9)
    averaged.learn(*batches(1)[0])
    averaged.save(tmp_path / "saved")
    with pytest.raises(SnclError, match="belongs to another learner"):
        learner(0.0).load(tmp_path / "saved")
