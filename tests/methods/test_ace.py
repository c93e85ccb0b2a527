"""Asymmetric cross-entropy: labels of an incoming batch compete among its own classes, and off means the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly, same
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.admission import Reservoir
from sncl.methods.der import DER
from sncl.methods.er import ER
from sncl.methods.er_ace import ERACE
from sncl.methods.method import Method
from sncl.methods.sncl import SNCL
from sncl.methods.table import METHODS, make
from sncl.networks.mlp import MLP
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner

FEATURES, CLASSES = 6, 5
TAKING = [name for name, entry in METHODS.items() if "ace" in entry.settings]


def rows(labels: list[int], seed: int) -> Fields:
    draw, count = generator(seed), len(labels)
    return {
        "x": torch.randn(count, FEATURES, generator=draw),
        "y": torch.tensor(labels),
        "logits": torch.randn(count, CLASSES, generator=draw),
        "slot": torch.arange(count),
        "weight": torch.rand(count, generator=draw),
    }


NOW, FIRST, SECOND = rows([1, 3, 3, 1], 0), rows([0, 1, 2, 3, 4, 0, 2], 1), rows([4, 2, 0], 2)


def network() -> Tapped:
    torch.manual_seed(0)
    return Tapped(MLP(FEATURES, CLASSES, width=5))


def written(logits: Tensor, part: Fields, among: list[int]) -> Tensor:
    """Cross-entropy as sums over ``among`` classes, sample by sample."""
    e = logits.double().exp()
    pairs = enumerate(part["y"].tolist())
    each = torch.stack([-(e[n, label] / sum(e[n, other] for other in among)).log() for n, label in pairs])
    return (each * part["weight"]).mean()


def test_those_that_take_it_are_the_replay_methods_with_the_labels_of_the_batch() -> None:
    assert TAKING == ["er", "der", "derpp", "sncl", "derpp+", "sncl+"]


@pytest.mark.parametrize(
    "method", [DER(0.3, 0.7, ace=1), SNCL(0.7, 0.3, 0.0, ace=1), ERACE()], ids=["der", "sncl", "-"]
)
def test_the_batch_competes_among_its_own_classes_and_the_memory_among_all(method: Method) -> None:
    net = network()
    past = (FIRST,) if isinstance(method, ERACE) else (FIRST, SECOND)
    outcome = method.observe(net, NOW, past)
    everything = list(range(CLASSES))
    replayed, weight = (FIRST, 1.0) if isinstance(method, ERACE) else (SECOND, 0.7)
    logits, again = net(NOW["x"]).logits, net(replayed["x"]).logits
    assert torch.allclose(outcome.losses["labels"].double(), written(logits, NOW, [1, 3]))
    expected = weight * written(again, replayed, everything)
    assert torch.allclose(outcome.losses["past_labels"].double(), expected)
    outcome.losses["labels"].backward()
    head = net.body.get_submodule("head").weight.grad
    assert head is not None and not head[[0, 2, 4]].any() and head[[1, 3]].any(1).all()


def test_replay_in_one_mean_stays_one_mean() -> None:
    net = network()
    loss = ER(ace=1).observe(net, NOW, (FIRST,)).losses["labels"]
    own, all_ = (written(net(part["x"]).logits, part, among) for part, among in ((NOW, [1, 3]), (FIRST, [*range(5)])))
    assert torch.allclose(loss.double(), (4 * own + 7 * all_) / 11)
    alone = ER(ace=1).observe(net, NOW, ()).losses["labels"]
    assert torch.allclose(alone.double(), own)


def test_what_the_memory_of_sncl_sorts_by_is_the_loss_among_all_classes() -> None:
    losses = [SNCL(0.7, 0.3, 0.0, ace=each).observe(network(), NOW, ()).remember["loss"] for each in (0, 1)]
    assert torch.equal(*losses)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Two tasks of two classes, and a batch of a single class now and then."""
    draw, made = generator(7), []
    for number in range(count):
        y = 2 * (number >= count // 2) + torch.randint(1 if number % 5 == 4 else 2, (8,), generator=draw)
        made.append((torch.randn(8, FEATURES, generator=draw) + y[:, None], y))
    return made


def learner(method: Method, seed: int = 0) -> Learner:
    torch.manual_seed(0)
    net = MLP(FEATURES, CLASSES, width=5)
    return Learner(net, method, memory=16, replay=8, lr=0.1, seed=seed, device="cpu")


def feed(subject: Learner, start: int = 0, stop: int = 16) -> Learner:
    for x, y in batches(16)[start:stop]:
        losses = subject.learn(x, y)
        assert all(loss.isfinite() for loss in losses.values())
    return subject


@pytest.mark.parametrize("name", TAKING)
def test_off_means_the_same_bits_and_on_does_not(name: str) -> None:
    """The plain ones as they are made without a word about it; the others have it on."""
    usual, off, on = (feed(learner(each)) for each in (make(name), make(name, {"ace": 0}), make(name, {"ace": 1})))
    assert same(usual, on if METHODS[name].plain else off)
    assert not same(off, on)


@pytest.mark.parametrize("name", TAKING)
def test_it_is_exact_to_resume(name: str, tmp_path: Path) -> None:
    def go(subject: Learner, start: int, stop: int) -> None:
        feed(subject, start, stop)

    assert goes_on_exactly(lambda seed: learner(make(name, {"ace": 1}), seed), go, 7, 16, tmp_path)


def test_sncl_without_its_other_parts_is_der_with_it_bit_for_bit() -> None:
    ours = feed(learner(SNCL(alpha=0.5, beta=0.3, gamma=0.0, admission=Reservoir(), ace=1)))
    theirs = feed(learner(DER(logits=0.3, labels=0.5, ace=1)))
    known = theirs.body.state_dict()
    assert all(torch.equal(value, known[name]) for name, value in ours.body.state_dict().items())


def test_a_growing_network_competes_among_the_classes_that_came() -> None:
    torch.manual_seed(0)
    subject = Learner(MLP(FEATURES, 2, width=5), DER(0.3, 0.5, ace=1), memory=16, replay=8, device="cpu", grow=True)
    feed(subject)
    assert subject.outputs == 4


@pytest.mark.parametrize("ace", [2, -1, 0.5])
def test_it_is_on_or_off(ace: float) -> None:
    for made in (lambda: ER(ace=ace), lambda: DER(0.1, 0.1, ace=ace), lambda: SNCL(0.1, 0.1, 0.1, ace=ace)):  # type: ignore[arg-type]
        with pytest.raises(SnclError, match="`ace` is 0"):
            made()
