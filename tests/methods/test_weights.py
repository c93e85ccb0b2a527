"""Weights of samples, over every method: ones change nothing, others weigh the labels' terms and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from numpy.typing import NDArray
from resuming import same
from shipped import FORMS, Shipped, shipped
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method, Outcome
from sncl.methods.table import METHODS
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

WEIGHED = {name: each for name, each in FORMS.items() if each.method != "icarl"}
EVERY = pytest.mark.parametrize("subject", [pytest.param(each, id=name) for name, each in WEIGHED.items()])
EVERY_NAME = pytest.mark.parametrize("name", [name for name in METHODS if name != "icarl"])
TOGETHER = ("er", "mer", "hal", "gss")  # one mean over the batch and what is replayed


def feed(learner: Learner, stream: list[tuple[Tensor, Tensor]], weights: list[Tensor | None]) -> None:
    """Both tasks of the blobs, with their boundaries for those that need them."""
    half = len(stream) // 2
    for number, ((x, y), weight) in enumerate(zip(stream, weights, strict=True), 1):
        learner.learn(x, y, weight)
        if learner.method.needs_boundaries and number in (half, len(stream)):
            task = stream[:half] if number == half else stream[half:]
            learner.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def drawn_weights(count: int, rows: int = 8) -> list[Tensor | None]:
    numbers = torch.Generator().manual_seed(3)
    return [3 * torch.rand(rows, generator=numbers) for _ in range(count)]


@EVERY
def test_weights_of_one_change_nothing(subject: Shipped) -> None:
    plain, weighed, stream = subject.learner(), subject.learner(), subject.batches(8)
    feed(plain, stream, [None] * 8)
    feed(weighed, stream, [torch.ones(8)] * 8)
    ours, theirs = plain.state(), weighed.state()
    assert theirs.keys() - ours.keys() <= {"memory/rows/weight"}
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def cross_entropies(logits: NDArray[np.float64], y: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By hand: the softmax runs over the classes ``among``."""
    masses = np.exp(logits - logits.max(1, keepdims=True)) * among
    found: NDArray[np.float64] = -np.log(masses[np.arange(len(y)), y] / masses.sum(1))
    return found


def plain_of(name: str) -> str:
    """The method without additions."""
    return METHODS[name].plain or name


class Watched:
    """What a method's labels' terms are, beside what plain arithmetic says of them."""

    def __init__(self, method: Method, name: str) -> None:
        self.method, self.name, self.observe = method, name, method.observe
        self.seen = np.zeros(CLASSES, dtype=bool)
        self.terms: list[tuple[float, float]] = []

    def __call__(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        expected = self.expected(net, now, past)
        outcome = self.observe(net, now, past)
        found = {name: float(value.detach()) for name, value in outcome.losses.items() if name in expected}
        assert found.keys() == expected.keys()
        self.terms += [(found[name], expected[name]) for name in found]
        return outcome

    def expected(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> dict[str, float]:
        self.seen[now["y"].numpy()] = True
        everything = np.ones(CLASSES, dtype=bool)
        own = np.isin(np.arange(CLASSES), now["y"].numpy())
        among = own if plain_of(self.name) == "er-ace" or getattr(self.method, "ace", 0) else everything
        among = self.seen if self.name == "lwf" else among
        if self.name in TOGETHER and past:
            rows = {name: torch.cat([now[name], past[0][name]]) for name in ("x", "y", "weight")}
            return {"labels": self.mean(net, rows, everything)}
        found = {"labels": self.mean(net, now, among)}
        if self.name == "gem":
            for task in {int(each) for batch in past for each in batch["task"]}:
                rows = {name: value[past[0]["task"] == task] for name, value in past[0].items()}
                found[f"past/{task}"] = self.mean(net, rows, everything)
        elif past and plain_of(self.name) in ("er-ace", "agem", "agem-r"):
            found["past_labels"] = self.mean(net, past[0], everything)
        elif past and plain_of(self.name) in ("derpp", "sncl"):
            factor: Any = self.method.labels if plain_of(self.name) == "derpp" else self.method.alpha
            found["past_labels"] = factor * self.mean(net, past[1], everything)
        return found

    @torch.no_grad()
    def mean(self, net: Tapped, rows: Fields, among: NDArray[np.bool_]) -> float:
        logits = net(rows["x"]).logits.double().numpy()
        each = cross_entropies(logits, rows["y"].numpy(), among)
        return float((rows["weight"].double().numpy() * each).sum() / len(each))


@EVERY_NAME
def test_a_weight_vector_scales_the_labels_terms(name: str) -> None:
    """Those of the batch and, by the weights that came with them, those of replayed samples."""
    learner = shipped(name, {}, **({"gates": "off"} if plain_of(name) == "sncl" else {})).learner()
    watched = Watched(learner.method, name)
    learner.method.observe = watched  # type: ignore[assignment]
    feed(learner, batches(8), drawn_weights(8))
    found, expected = np.array(watched.terms).T
    assert len(found) >= 8
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@EVERY_NAME
def test_the_memory_keeps_the_weight_of_each_sample(name: str) -> None:
    learner, stream, weights = shipped(name, {}).learner(), batches(8), drawn_weights(8)
    feed(learner, stream, weights)
    if learner.memory is None:
        assert not METHODS[name].memory
        return
    given = dict(zip((tuple(row.tolist()) for x, _ in stream for row in x), torch.cat(weights).tolist(), strict=True))  # type: ignore[arg-type]
    content = learner.memory.content()
    assert content["weight"].tolist() == [given[tuple(row.tolist())] for row in content["x"]]


def test_a_label_without_weight_does_not_pull() -> None:
    first, second = (shipped("sgd", {}).learner() for _ in range(2))
    (x, y), other = batches(1)[0], torch.tensor([1, 0, 1, 2, 3, 2, 3, 0])
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    first.learn(x, y, weight)
    second.learn(x, torch.where(weight > 0, y, other), weight)
    assert same(first, second)
    before = {name: value.clone() for name, value in first.body.state_dict().items()}
    first.learn(x, y, torch.zeros(8))
    assert all(torch.equal(value, before[name]) for name, value in first.body.state_dict().items())


@pytest.mark.parametrize("name", ["er", "sncl", "gem", "sgd"])
def test_weights_may_come_and_go_and_a_run_resumes_exactly(name: str, tmp_path: Path) -> None:
    """A sample without a weight counts 1, also one that was stored before there were any."""
    stream, some = batches(8), drawn_weights(8)
    mixed = [*[None] * 3, *some[3:6], None, some[7]]
    written_out = [torch.ones(8) if each is None else each for each in mixed]
    learner, explicit = (shipped(name, {}).learner() for _ in range(2))
    feed(learner, stream, mixed)
    feed(explicit, stream, written_out)  # type: ignore[arg-type]
    assert same(learner, explicit)
    for stop in (2, 4, 7):
        one, two = shipped(name, {}).learner(), shipped(name, {}).learner(seed=9)
        for number in range(8):
            if number == stop:
                one.save(tmp_path / "a")
                two.load(tmp_path / "a")
                one = two
            one.learn(*stream[number], mixed[number])
            if one.method.needs_boundaries and number in (3, 7):
                one.boundary()
        assert same(one, learner)


def test_the_losses_that_decide_admission_are_those_without_weights() -> None:
    learner = shipped("sncl", {}, admission="loss-aware").learner()
    x, y = batches(1)[0]
    learner.prepare(x)
    net = learner.net
    expected = cross_entropies(net(x).logits.detach().double().numpy(), y.numpy(), np.ones(CLASSES, dtype=bool))
    learner.learn(x, y, torch.full((8,), 100.0))
    assert learner.memory is not None
    np.testing.assert_allclose(learner.memory.content()["loss"].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0] * 7, r"`weight` is one number for each label in y: got \[7\] for \[8\]"),
        (1.0, r"got \[\] for \[8\]"),
        ([1.0] * 7 + [-1.0], "a `weight` is a finite number of at least 0, not -1"),
        ([1.0] * 7 + [float("nan")], "not nan"),
        ([1.0] * 7 + [1e39], "not inf"),  # in single precision
        (["a"] * 8, "weight holds numbers, not <U1 such as 'a'"),
    ],
)
def test_what_is_no_weight_is_refused_before_anything_is_learned(weight: Any, words: str) -> None:
    learner = Learner(nn.Sequential(nn.Linear(FEATURES, 2)), "er", memory=20, device="cpu", grow=True)
    x, y = batches(1)[0]
    learner.learn(x, y)
    before, outputs = learner.state(), learner.outputs
    with pytest.raises(SnclError, match=words):
        learner.learn(x, y + 5, weight)
    after = learner.state()
    assert learner.outputs == outputs and all(torch.equal(value, after[name]) for name, value in before.items())


def test_methods_that_take_no_weights_say_so() -> None:
    x, y = batches(1)[0]
    with pytest.raises(SnclError, match="ICaRL takes no weights of samples; leave them out, or use another method"):
        shipped("icarl", {}).learner().learn(x, y, torch.ones(8))

    class Own(Method):
        def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
            return Outcome({"labels": nn.functional.cross_entropy(net(now["x"]).logits, now["y"])})

    learner = Learner(nn.Linear(FEATURES, CLASSES), Own(), device="cpu")
    learner.learn(x, y)
    with pytest.raises(SnclError, match="Own takes no weights"):
        learner.learn(x, y, torch.ones(8))
