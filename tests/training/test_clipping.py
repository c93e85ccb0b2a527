"""Gradient clipping: the bound follows the norm, lets ordinary training alone and is part of the state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from resuming import goes_on_exactly, same
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.tensors.random import generator
from sncl.training.clipping import Clip
from sncl.training.learner import Learner

FEATURES = 6


def learner(clip: float, seed: int = 0, method: str = "sncl", **options: Any) -> Learner:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 3))
    return Learner(net, method, memory=20, replay=8, lr=0.1, seed=seed, device="cpu", clip=clip, **options)


def batch(number: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    draw = generator(number, "clipping")
    y = torch.randint(3, (8,), generator=draw)
    return scale * (torch.randn(8, FEATURES, generator=draw) + y[:, None]), y


def clipped(norms: list[float], factor: float) -> list[float]:
    """The same, written down as a loop over numbers."""
    mean, found = 0.0, []
    for step, norm in enumerate(norms):
        bound = factor * mean if step >= 10 and mean else math.inf
        found.append(min(norm, bound))
        mean += max(1 - (1 + step) / (10 + step), 0.01) * (min(norm, 10 * bound) - mean)
    return found


@pytest.mark.parametrize("factor", [1.0, 2.0, 5.0])
def test_norms_are_bounded_by_a_multiple_of_their_running_mean(factor: float) -> None:
    draw = generator(0, "norms")
    norms = [float(each) for each in torch.rand(150, generator=draw, dtype=torch.float64) + 0.5]
    norms[40], norms[90:] = 1e6, [100 * norm for norm in norms[90:]]  # an outlier, and a task with steeper losses
    clip, found = Clip(factor, torch.device("cpu")), []
    for norm in norms:
        gradients = [torch.tensor([0.6 * norm, 0.0]), torch.tensor([[-0.8 * norm]])]
        clip(gradients)
        found.append(math.hypot(float(gradients[0][0]), float(gradients[1])))
    assert found == pytest.approx(clipped(norms, factor), rel=1e-4)
    assert found[40] < 10 * factor and found[-1] > 30  # neither carried away nor left behind


def test_a_gradient_of_zeros_stops_nothing() -> None:
    clip = Clip(2.0, torch.device("cpu"))
    for value in [0.0] * 30 + [1.0]:
        gradient = torch.full((3,), value)
        clip([gradient])
    assert gradient.tolist() == [1.0] * 3


def test_what_is_not_bounded_keeps_its_bits() -> None:
    free, bounded = learner(0.0), learner(1e6)
    for number in range(30):
        free.learn(*batch(number))
        bounded.learn(*batch(number))
    ours, theirs = free.state(), bounded.state()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert theirs.keys() - ours.keys() == {"clip/mean", "clip/steps"}


def test_inputs_that_nobody_expected_do_not_end_training() -> None:
    x, y = (torch.cat(each) for each in zip(*map(batch, range(200, 240)), strict=True))

    def after_a_shock(clip: float) -> float:
        subject = learner(clip, method="sgd")
        for number in range(90):
            subject.learn(*batch(number, scale=30.0 if number in (60, 61) else 1.0))
        return float((subject.predict(x) == y).float().mean())

    assert after_a_shock(0.0) < 0.6 < after_a_shock(2.0)


def test_the_bound_is_part_of_what_is_saved(tmp_path: Path) -> None:
    def go(subject: Learner, start: int, stop: int) -> None:
        for number in range(start, stop):
            subject.learn(*batch(number, scale=1 + 5 * (number % 7 == 0)))

    assert goes_on_exactly(lambda seed: learner(1.5, seed), go, 17, 33, tmp_path)
    first, second = learner(1.5), learner(2.0)
    go(first, 0, 3)
    first.save(tmp_path / "a")
    with pytest.raises(SnclError, match=r"'clip': 1\.5"):
        second.load(tmp_path / "a")


def test_a_network_that_grows_keeps_its_bound() -> None:
    subject = learner(2.0, grow=True)
    for number in range(12):
        subject.learn(*batch(number))
    before = {name: value for name, value in subject.state().items() if name.startswith("clip/")}
    subject.grow(5)
    assert all(torch.equal(subject.state()[name], value) for name, value in before.items())
    again = learner(2.0, grow=True)
    again.restore(subject.state(), subject.description())
    assert same(subject, again)


@pytest.mark.parametrize("clip", [0.5, -1.0, math.nan])
def test_a_bound_below_the_mean_is_refused(clip: float) -> None:
    with pytest.raises(SnclError, match="`clip` is 0"):
        learner(clip)
