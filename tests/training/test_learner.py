"""The public API on a person's own network."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import sncl
import sncl.training.learner
from sncl.errors import SnclError
from sncl.training.descent import Descent
from sncl.training.learner import Learner


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_descent_is_torch_sgd() -> None:
    ours, theirs = network(), network()
    first = Descent([{"params": ours.parameters(), "lr": 0.3}])
    second = torch.optim.SGD(theirs.parameters(), lr=0.3)
    x = torch.randn(5, 4)
    for _ in range(3):
        for net, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_another_optimiser_is_saved_with_its_moments(tmp_path: Path) -> None:
    def make() -> Learner:
        return Learner(network(), "er", memory=10, device="cpu", optimizer=torch.optim.Adam)

    x, y = torch.randn(40, 4), torch.randint(3, (40,))
    unbroken, first, second = make(), make(), make()
    for start in range(0, 40, 4):
        unbroken.learn(x[start : start + 4], y[start : start + 4])
    for start in range(0, 20, 4):
        first.learn(x[start : start + 4], y[start : start + 4])
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    for start in range(20, 40, 4):
        second.learn(x[start : start + 4], y[start : start + 4])
    ours, theirs = unbroken.state(), second.state()
    assert any(name.startswith("optimizer/") for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_package_offers_what_it_says() -> None:
    assert sncl.Learner is Learner
    assert set(sncl.__all__) <= {name for name in sncl.__all__ if getattr(sncl, name)}
    with pytest.raises(AttributeError, match="nothing"):
        sncl.nothing  # noqa: B018


@pytest.mark.parametrize("module", [sncl, sncl.training.learner])
def test_examples_in_docstrings_run(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted > 3 and not failed


def test_clear_errors(tmp_path: Path) -> None:
    learner = Learner(network(), device="cpu")
    with pytest.raises(SnclError, match="has not learned anything yet"):
        learner.predict(torch.rand(1, 4))
    with pytest.raises(SnclError, match="same number of rows"):
        learner.learn(torch.rand(3, 4), torch.zeros(2).long())
    with pytest.raises(SnclError, match="at least 1 row"):
        learner.learn(torch.rand(0, 4), torch.zeros(0).long())
    with pytest.raises(SnclError, match=r"labels are integers .*float32"):
        learner.learn(torch.rand(3, 4), torch.zeros(3))
    with pytest.raises(SnclError, match=r"there is no method 'magic'; the known ones are sgd"):
        Learner(network(), "magic")
    with pytest.raises(SnclError, match="positive number, not 0"):
        Learner(network(), lr=0)
    with pytest.raises(SnclError, match="`memory` is at least 1 sample, not 0"):
        Learner(network(), memory=0)
    with pytest.raises(SnclError, match=r"no CUDA device|no device"):
        Learner(network(), device="cuda" if not torch.cuda.is_available() else "nonsense")
    with pytest.raises(SnclError, match="there is no checkpoint"):
        learner.load(tmp_path / "none")


def test_a_checkpoint_of_another_learner_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    x, y = torch.rand(4, 4), torch.zeros(4).long()
    first = Learner(network(), "er", memory=10, device="cpu")
    first.learn(x, y)
    first.save(tmp_path / "er")
    for other in (
        Learner(network(), "der", memory=10, device="cpu"),
        Learner(network(), "er", memory=11, device="cpu"),
    ):
        with pytest.raises(SnclError, match="belongs to another learner"):
            other.load(tmp_path / "er")
    larger = Learner(nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3)), "er", memory=10, device="cpu")
    with pytest.raises(SnclError, match="another network"):
        larger.load(tmp_path / "er")


def test_labels_outside_the_outputs_are_refused_in_words() -> None:
    learner = Learner(network(), "er", device="cpu")
    with pytest.raises(SnclError, match=r"label 3 .* 3 outputs"):
        learner.learn(torch.rand(2, 4), torch.tensor([0, 3]))
    with pytest.raises(SnclError, match=r"label -1"):
        learner.learn(torch.rand(2, 4), torch.tensor([0, -1]))


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    learner, other = Learner(network(), "er", device="cpu"), Learner(network(), "er", device="cpu")
    learner.learn(torch.rand(2, 4), torch.tensor([0, 1]))
    with pytest.raises(SnclError, match=r"written by another version of sncl \(format 4, here 5\)"):
        other.restore(learner.state(), learner.description() | {"format": 4})


def test_a_checkpoint_of_the_network_alone_needs_no_inputs() -> None:
    learner, other = (Learner(network(), "er", memory=5, seed=seed, device="cpu") for seed in (0, 1))
    x = torch.rand(6, 4)
    for _ in range(3):
        learner.learn(x, torch.tensor([0, 1, 2, 0, 1, 2]))
    kept = {name: value for name, value in learner.state().items() if name.startswith(("network/", "method/"))}
    other.restore_network(kept, learner.description())
    assert torch.equal(other.logits(x), learner.logits(x))
