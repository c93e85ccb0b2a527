"""oEWC, SI, LwF and ER-ACE against their equations, computed here by other means, and against plain training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import blobs
import pytest
import torch
from resuming import same
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.methods.er_ace import ERACE
from sncl.methods.ewc import OEWC, squared_gradients
from sncl.methods.gradients import weight_vector
from sncl.methods.lwf import LwF
from sncl.methods.method import Method
from sncl.methods.sgd import SGD
from sncl.methods.si import SI
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.streams.transforms import CropFlip
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner

CLASSES, FEATURES = 4, 6
Rows = list[tuple[Tensor, Tensor]]
batches = partial(blobs.batches, features=FEATURES)
MAKE: dict[str, Callable[[], Method]] = {
    "oewc": lambda: OEWC(strength=5.0, decay=0.9),
    "si": lambda: SI(strength=5.0, damping=0.1),
    "lwf": lambda: LwF(alpha=1.0, temperature=2.0, decay=1e-4),
    "er-ace": ERACE,
}


def turned(count: int, seed: int) -> Rows:
    """Blobs of two tasks with the same two classes: in the second, class 1 has moved."""
    numbers = generator(seed, "turned")
    centres = 2 * torch.randn(4, FEATURES, generator=numbers)
    made = []
    for number in range(count):
        y = torch.randint(2, (8,), generator=numbers)
        where = y + 2 * (number >= count // 2)
        made.append((centres[where] + torch.randn(8, FEATURES, generator=numbers), y))
    return made


def whole(rows: Rows) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])


def learner(method: Method, net: nn.Module | None = None, lr: float = 0.05, seed: int = 0) -> Learner:
    torch.manual_seed(0)
    return Learner(net or MLP(FEATURES, CLASSES, width=5), method, memory=20, replay=8, lr=lr, seed=seed, device="cpu")


def feed(subject: Learner, rows: Rows, start: int = 0, stop: int | None = None) -> Learner:
    """Learn the batches from ``start`` to ``stop``, with a boundary in the middle and one at the end of ``rows``."""
    half = len(rows) // 2
    for number in range(start, len(rows) if stop is None else stop):
        subject.learn(*rows[number])
        if (number + 1) % half == 0:
            subject.boundary(*whole(rows[number + 1 - half : number + 1]))
    return subject


def weights(subject: Learner | nn.Module) -> Tensor:
    net = subject.body if isinstance(subject, Learner) else subject
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def fisher_by_rows(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The weighted squared gradients, one backward pass for each row."""
    total = torch.zeros_like(weights(net))
    net.eval()
    for row, label in zip(x, y, strict=True):
        chance = net(row[None]).log_softmax(1)[0, label]
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(chance, list(net.parameters()))])
        total += chance.exp().detach() * gradient**2
    net.train()
    return total


class Reused(nn.Module):
    """A linear layer that runs twice, so that its gradient is no single outer product."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.inner(torch.tanh(self.inner(x))))
        return logits


def flat_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(9, FEATURES, generator=generator(1)), torch.arange(9) % CLASSES


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 3, 8, 8, generator=generator(1)), torch.arange(5) % CLASSES


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "linear": (lambda: MLP(FEATURES, CLASSES, width=5), flat_inputs),
    "overwriting": (
        lambda: nn.Sequential(
            nn.Linear(FEATURES, 7, bias=False), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(7, CLASSES)
        ),
        flat_inputs,
    ),
    "reused": (Reused, flat_inputs),
    "normalised": (
        lambda: nn.Sequential(nn.Linear(FEATURES, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, CLASSES)),
        flat_inputs,
    ),
    "convolutional": (lambda: ResNet18(CLASSES, width=2), images),
}


@pytest.mark.parametrize("name", list(NETS))
def test_squared_gradients_equal_a_loop_over_rows(name: str) -> None:
    make, inputs = NETS[name]
    torch.manual_seed(0)
    net, (x, y) = make(), inputs()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = squared_gradients(Tapped(net), x, y)
    assert torch.allclose(found, fisher_by_rows(net, x, y), rtol=1e-4, atol=1e-7)
    assert net.training and all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not any(module._forward_hooks for module in net.modules())


def test_squared_gradients_of_a_partly_frozen_network() -> None:
    net, (x, y) = MLP(FEATURES, CLASSES, width=5), flat_inputs()
    expected = fisher_by_rows(net, x, y)
    net.layer1.requires_grad_(False)
    frozen = sum(weight.numel() for weight in net.layer1.parameters())
    assert torch.allclose(squared_gradients(Tapped(net), x, y), expected[frozen:], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("chunk", [2**25, 1])
def test_oewc_keeps_a_decaying_sum_of_fisher_information(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sncl.methods.ewc.CHUNK", chunk)
    method = OEWC(strength=3.0, decay=0.5)
    subject, rows = learner(method), batches(8)
    feed(subject, rows, stop=4)
    first, anchor = fisher_by_rows(subject.body, *whole(rows[:4])) / 32, weights(subject)
    assert torch.allclose(method.fisher, first, rtol=1e-4, atol=1e-7) and torch.equal(method.anchor, anchor)
    for x, y in rows[4:]:
        here = weights(subject)
        losses = subject.learn(x, y)
        assert torch.allclose(losses["penalty"], 3.0 * (method.fisher * (here - anchor) ** 2).sum())
    subject.boundary(*whole(rows[4:]))
    second = fisher_by_rows(subject.body, *whole(rows[4:])) / 32
    assert torch.allclose(method.fisher, 0.5 * first + second, rtol=1e-4, atol=1e-7)
    assert torch.equal(method.anchor, weights(subject)) and not torch.equal(anchor, method.anchor)


def test_oewc_looks_at_the_rows_through_the_view_of_training() -> None:
    transform = CropFlip(2, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    x = torch.randint(256, (5, 3, 8, 8), generator=generator(0), dtype=torch.uint8)
    y = torch.arange(5) % CLASSES
    torch.manual_seed(0)
    method = OEWC(strength=1.0)
    subject = Learner(ResNet18(CLASSES, width=2), method, transform=transform, device="cpu")
    subject.learn(x, y)
    shown = transform(x, torch.rand((5, transform.randoms), generator=generator(0, "boundary"), dtype=torch.float64))
    expected = fisher_by_rows(subject.body, shown, y) / 5
    subject.boundary(x, y)
    assert torch.allclose(method.fisher, expected, rtol=1e-3, atol=1e-6)


def test_si_adds_up_the_path_and_turns_it_into_importance() -> None:
    method, lr = SI(strength=2.0, damping=0.3), 0.5
    rows = [(8 * x, y) for x, y in batches(6)]  # large inputs, so that clipping has something to do
    subject = learner(method, lr=lr)
    subject.prepare(rows[0][0])
    start = theta = weights(subject)
    importance = torch.zeros_like(theta)
    clipped = 0
    for task in range(2):
        path = torch.zeros_like(theta)
        for x, y in rows[3 * task : 3 * task + 3]:
            moving = theta.clone().requires_grad_()
            named = dict(zip(dict(subject.body.named_parameters()), split(moving, subject.body), strict=True))
            logits = torch.func.functional_call(subject.body, named, (x,))
            loss = F.cross_entropy(logits, y) + 2.0 * (importance * (moving - start) ** 2).sum()
            (gradient,) = torch.autograd.grad(loss, moving)
            clipped += int((gradient.abs() > 1).sum())
            gradient = gradient.clamp(-1, 1)
            path += lr * gradient**2
            theta = theta - lr * gradient
            losses = subject.learn(x, y)
            assert torch.allclose(losses["labels"] + losses["penalty"], loss, rtol=1e-4)
            assert torch.allclose(method.path, path, atol=1e-5) and torch.allclose(weights(subject), theta, atol=1e-5)
        subject.boundary()
        importance = importance + path / ((theta - start) ** 2 + 0.3)
        start = theta
        assert torch.allclose(method.importance, importance, rtol=1e-3, atol=1e-5)
        assert torch.equal(method.path, torch.zeros_like(path)) and torch.equal(method.start, weights(subject))
    assert clipped > 0 and (method.importance > 0).any()


def split(vector: Tensor, net: nn.Module) -> list[Tensor]:
    """A vector as the parameters it is made of."""
    sizes = [parameter.numel() for parameter in net.parameters()]
    return [part.view_as(old) for part, old in zip(vector.split(sizes), net.parameters(), strict=True)]


def test_lwf_equals_its_equation() -> None:
    method = LwF(alpha=3.0, temperature=2.5, decay=0.01)
    subject, rows = learner(method), batches(8)
    losses = subject.learn(rows[0][0], torch.zeros(8).long())
    assert losses["labels"] == 0 and losses["past_answers"] == 0  # one class only, and nothing known before
    losses = subject.learn(*rows[1])
    assert losses["past_answers"] == 0
    subject.boundary()
    old = {name: value.clone() for name, value in subject.body.state_dict().items()}
    for x, _ in rows[4:]:
        y = torch.full((8,), 3)
        now, then = subject.body(x), torch.func.functional_call(subject.body, old, (x,))
        labels = F.cross_entropy(now[:, [0, 1, 3]], torch.full((8,), 2))  # class 2 has not come yet
        wanted, given = (z[:, :2].div(2.5).softmax(1) for z in (then, now))  # classes known at the boundary
        decay = 0.01 * weights(subject).square().sum()
        losses = subject.learn(x, y)
        assert torch.allclose(losses["labels"], labels, rtol=1e-4)
        assert torch.allclose(losses["past_answers"], -3.0 * (wanted * given.log()).sum(1).mean(), rtol=1e-4)
        assert torch.allclose(losses["decay"], decay)
    assert method.seen.tolist() == [True, True, False, True] and method.known.tolist() == [True, True, False, False]
    assert all(torch.equal(value, old[name]) for name, value in method.before.state_dict().items())


def test_lwf_distils_from_the_old_network_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(FEATURES, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, CLASSES))
    method = LwF(alpha=1.0)
    subject, rows = learner(method, net), batches(12)
    feed(subject, rows, stop=6)
    kept = {name: value.clone() for name, value in method.before.state_dict().items()}
    assert all(torch.equal(kept[name], value) for name, value in subject.body.state_dict().items())
    x, y = rows[6]
    then = method.before(x)
    assert torch.allclose(then[:1], method.before(x[:1]))  # a row's answer is its own
    assert not then.requires_grad
    subject.learn(x, y)
    assert all(torch.equal(kept[name], value) for name, value in method.before.state_dict().items())
    assert not torch.equal(kept["1.running_mean"], subject.body.state_dict()["1.running_mean"])


def test_er_ace_equals_its_equation() -> None:
    torch.manual_seed(0)
    net = Tapped(MLP(FEATURES, CLASSES, width=5))
    x, again = torch.randn(4, FEATURES), torch.randn(7, FEATURES)
    now: Fields = {"x": x, "y": torch.tensor([1, 3, 3, 1])}
    past: Fields = {"x": again, "y": torch.arange(7) % CLASSES, "slot": torch.arange(7)}
    losses = ERACE().observe(net, now, (past,)).losses
    e = net(x).logits.exp()
    chances = [e[n, label] / (e[n, 1] + e[n, 3]) for n, label in enumerate((1, 3, 3, 1))]
    assert torch.allclose(losses["labels"], -torch.stack(chances).log().mean())
    assert torch.allclose(losses["past_labels"], F.cross_entropy(net(again).logits, past["y"]))
    assert set(ERACE().observe(net, now, ()).losses) == {"labels"}
    losses["labels"].backward()
    head = net.body.get_submodule("head").weight.grad
    assert head is not None and head[[0, 2]].abs().sum() == 0 and head[[1, 3]].abs().sum() > 0


def test_er_ace_with_one_class_in_the_batch_learns_from_the_memory_only() -> None:
    subject = learner(ERACE())
    before = None
    for number in range(6):
        losses = subject.learn(torch.randn(1, FEATURES, generator=generator(number)), torch.tensor([number % 2]))
        assert losses["labels"] == 0
        before = before if before is not None else weights(subject)
    assert before is not None and torch.isfinite(weights(subject)).all() and not torch.equal(before, weights(subject))


class Clipped(SGD):
    """Plain training with SI's limit on the gradient."""

    def backward(self, net: Tapped, losses: Fields) -> None:
        super().backward(net, losses)
        nn.utils.clip_grad_value_(net.parameters(), 1.0)


def test_without_their_penalties_they_are_plain_training_bit_for_bit() -> None:
    rows = batches(20)
    plain, clipped = feed(learner(SGD()), rows), feed(learner(Clipped()), rows)
    assert torch.equal(weights(feed(learner(OEWC(strength=0.0)), rows)), weights(plain))
    assert torch.equal(weights(feed(learner(SI(strength=0.0)), rows)), weights(clipped))
    assert not torch.equal(weights(feed(learner(OEWC(strength=1.0)), rows)), weights(plain))
    assert not torch.equal(weights(feed(learner(SI(strength=1.0)), rows)), weights(clipped))


def test_lwf_without_its_terms_is_training_over_the_seen_classes() -> None:
    rows = batches(20)
    subject = feed(learner(LwF(alpha=0.0)), rows)
    torch.manual_seed(0)
    net = MLP(FEATURES, CLASSES, width=5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for number, (x, y) in enumerate(rows):
        optimizer.zero_grad()
        F.cross_entropy(net(x)[:, : 2 if number < 10 else 4], y).backward()
        optimizer.step()
    assert torch.allclose(weights(subject), weights(net), atol=1e-6)


@pytest.mark.parametrize("name", list(MAKE))
@pytest.mark.parametrize("stop", [1, 4, 5, 7, 10])
def test_saving_and_loading_around_a_boundary_changes_nothing(name: str, stop: int, tmp_path: Path) -> None:
    rows = batches(10)
    unbroken = feed(learner(MAKE[name]()), rows)
    feed(learner(MAKE[name]()), rows, stop=stop).save(tmp_path / "learner")
    resumed = learner(MAKE[name](), seed=99)
    resumed.load(tmp_path / "learner")
    feed(resumed, rows, start=stop)
    assert same(unbroken, resumed)


@pytest.mark.parametrize("name", list(MAKE))
def test_a_task_ends_on_a_convolutional_network_with_augmented_bytes(name: str) -> None:
    torch.manual_seed(0)
    transform = CropFlip(2, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    subject = Learner(ResNet18(CLASSES, width=2), MAKE[name](), memory=6, replay=3, transform=transform, device="cpu")
    numbers = generator(0)
    for _ in range(4):
        x = torch.randint(256, (4, 3, 8, 8), generator=numbers, dtype=torch.uint8)
        y = torch.randint(CLASSES, (4,), generator=numbers)
        losses = subject.learn(x, y)
        assert all(torch.isfinite(loss) for loss in losses.values())
        subject.boundary(x, y)
    assert all(torch.isfinite(value).all() for value in subject.state().values())


def first_task_accuracy(method: Callable[[], Method], make: Callable[[int], Rows]) -> float:
    """On the first task when the second is learned, mean over three streams."""
    total = 0.0
    for seed in range(3):
        rows = make(seed)
        subject = feed(learner(method(), MLP(FEATURES, CLASSES, width=16), seed=seed), rows)
        x, y = whole(rows[: len(rows) // 2])
        total += (subject.predict(x) == y).float().mean().item() / 3
    return total


@pytest.mark.parametrize(
    "make", [lambda seed: batches(60, seed=seed), lambda seed: turned(60, seed)], ids=["new", "moved"]
)
@pytest.mark.parametrize(
    ("method", "gain"),
    [(lambda: OEWC(strength=100.0), 0.03), (lambda: SI(strength=10.0, damping=0.01), 0.1), (ERACE, 0.1)],
    ids=["oewc", "si", "er-ace"],
)
def test_less_of_the_first_task_is_lost(make: Callable[[int], Rows], method: Callable[[], Method], gain: float) -> None:
    """Whether new classes come or the known ones move, more is left than after plain training."""
    assert first_task_accuracy(method, make) > first_task_accuracy(SGD, make) + gain


def test_lwf_changes_its_old_answers_less_the_more_they_weigh() -> None:
    drift = []
    for alpha in (0.0, 3.0):
        rows = batches(60)
        subject = feed(learner(LwF(alpha=alpha)), rows, stop=30)
        x = whole(rows[30:])[0]
        before = subject.logits(x)[:, :2].softmax(1)
        feed(subject, rows, start=30)
        drift.append((subject.logits(x)[:, :2].softmax(1) - before).abs().mean().item())
    assert drift[0] > 2 * drift[1]


def test_lwf_predicts_no_class_that_never_came() -> None:
    rows = batches(60)
    subject = feed(learner(LwF(alpha=1.0)), rows, stop=30)
    x, y = whole(rows[:30])
    assert (subject.predict(x) == y).float().mean() > 0.95
    logits = subject.logits(x)
    assert torch.equal(logits[:, :2], subject.net(x).logits[:, :2])
    assert (logits[:, 2:] < logits[:, :2].min()).all()
    assert torch.equal(logits[:, 2:].argmax(1), subject.net(x).logits[:, 2:].argmax(1))  # their order is kept


@pytest.mark.parametrize("strength", [1e4, 1e6])
def test_a_penalty_too_strong_for_the_step_size_holds_weights_and_does_not_diverge(strength: float) -> None:
    rows, method = turned(60, seed=3), OEWC(strength)
    subject = feed(learner(method, lr=0.1), rows, stop=30)
    before, held = weight_vector(subject.net).detach().clone(), method.fisher > 1 / (0.1 * strength)
    feed(subject, rows, start=30)
    free = feed(learner(SGD(), lr=0.1), rows)
    ours, theirs = ((weight_vector(each.net).detach() - before)[held].abs().mean() for each in (subject, free))
    assert held.any() and ours < 0.7 * theirs
