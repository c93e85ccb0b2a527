"""HAL against its equations, with the weights copied back and forth."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.methods.hal import HAL
from sncl.methods.method import TaskEnd
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner

INPUTS, CLASSES, WIDTH, LR = 6, 4, 5, 0.1


def prepared(method: HAL) -> Tapped:
    torch.manual_seed(0)
    net = method.prepare(MLP(INPUTS, CLASSES, WIDTH), torch.zeros(2, INPUTS), generator(0))
    method.bind(LR)
    return net


def batch(classes: tuple[int, ...], rows: int = 6, seed: int = 0) -> Fields:
    numbers = generator(seed, classes)
    y = torch.tensor(classes)[torch.randint(len(classes), (rows,), generator=numbers)]
    return {"x": torch.randn(rows, INPUTS, generator=numbers) + y[:, None], "y": y}


def ending(memory: Fields, seed: int = 0) -> TaskEnd:
    return TaskEnd({}, memory, 8, lambda x: 2 * x, lambda x: x, generator(seed))


def learner(seed: int = 0, net: nn.Module | None = None) -> Learner:
    torch.manual_seed(0)
    method = HAL(strength=0.5, decay=0.5, feature_weight=0.1, anchor_steps=3, finetune_rows=4)
    return Learner(net or MLP(INPUTS, CLASSES, WIDTH), method, memory=9, replay=4, lr=LR, seed=seed, device="cpu")


def test_anchors_leave_the_statistics_of_batch_norm_alone() -> None:
    method = HAL(strength=0.7, decay=0.5, feature_weight=0.1)
    torch.manual_seed(0)
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % CLASSES
    net = method.prepare(ResNet18(CLASSES, 3, 4), x[:2], generator(0))
    method.bind(LR)
    method.expand(net)
    method.anchors[:CLASSES] = 100 + torch.randn(CLASSES, 3, 8, 8)
    method.used[:CLASSES] = 1
    alone = deepcopy(net)
    alone(x)
    method.backward(net, method.observe(net, {"x": x, "y": y}, ()).losses)
    method.after_update(net, {"x": x, "y": y})
    for (name, ours), theirs in zip(net.body.named_buffers(), alone.body.buffers(), strict=True):
        assert torch.equal(ours, theirs), name


def test_the_gradient_is_that_of_replay_plus_that_of_the_anchors() -> None:
    method = HAL(strength=0.7, decay=0.5, feature_weight=0.1)
    net = prepared(method)
    method.expand(net)
    method.anchors[:CLASSES] = torch.randn(CLASSES, INPUTS)
    method.used[:3] = 1  # the fourth is a filling
    now, past = batch((0, 1)), batch((2, 3))
    method.backward(net, method.observe(net, now, (past,)).losses)

    body = deepcopy(net.body)
    body.zero_grad()
    x, y = torch.cat([now["x"], past["x"]]), torch.cat([now["y"], past["y"]])
    F.cross_entropy(body(x), y).backward()
    stepped = deepcopy(body)
    with torch.no_grad():
        for theta, own in zip(stepped.parameters(), body.parameters(), strict=True):
            assert own.grad is not None
            theta.sub_(LR * own.grad)
        kept = stepped(method.anchors[:3])
    (0.7 * F.mse_loss(body(method.anchors[:3]), kept)).backward()  # on top of what is there
    for ours, theirs in zip(net.body.parameters(), body.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-7)


def test_without_anchors_it_is_replay() -> None:
    method = HAL(strength=0.7, decay=0.5, feature_weight=0.1)
    net = prepared(method)
    now = batch((0, 1))
    method.backward(net, method.observe(net, now, ()).losses)
    other = deepcopy(net.body)
    other.zero_grad()
    F.cross_entropy(other(now["x"]), now["y"]).backward()
    assert all(
        torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
        for ours, theirs in zip(net.body.parameters(), other.parameters(), strict=True)
    )


def test_the_mean_feature_decays() -> None:
    method = HAL(strength=0.1, decay=0.7, feature_weight=0.1)
    net = prepared(method)
    expected = torch.zeros(WIDTH)
    with torch.no_grad():
        for seed in range(3):
            now = batch((1, 3), seed=seed)
            method.after_update(net, now)
            hidden = net.body.layer2(net.body.layer1(now["x"]))
            expected = 0.7 * expected + 0.3 * hidden.mean(0)
    assert torch.allclose(method.phi, expected)
    assert method.present.tolist() == [False, True, False, True]


def test_anchors_climb_to_what_their_class_forgets() -> None:
    """Each class by itself, with explicit copies of the network and an optimiser, from the same random numbers."""
    method = HAL(strength=0.1, decay=0.5, feature_weight=0.3, anchor_steps=5, finetune_rows=4)
    net = prepared(method)
    memory = batch((0, 1, 2, 3), rows=8)
    with torch.no_grad():
        method.after_update(net, batch((1, 3)))
    phi = method.phi.clone()
    method.at_boundary(net, ending(memory))

    numbers = generator(0)
    rows = torch.randperm(8, generator=numbers)[:4]
    starts = torch.rand(2, INPUTS, generator=numbers)
    tuned = deepcopy(net.body)
    tuned.zero_grad()
    F.cross_entropy(tuned(2 * memory["x"][rows]), memory["y"][rows]).backward()  # seen as in training
    torch.optim.SGD(tuned.parameters(), lr=LR).step()
    for number, label in enumerate((1, 3)):
        x = starts[number : number + 1].clone().requires_grad_()
        descent = torch.optim.SGD([x], lr=LR)
        for _ in range(5):
            descent.zero_grad()
            y = torch.tensor([label])
            hidden = net.body.layer2(net.body.layer1(x))
            far = ((phi - hidden) ** 2).sum()
            (F.cross_entropy(net.body(x), y) - F.cross_entropy(tuned(x), y) + 0.3 * far).backward()
            descent.step()
        assert torch.allclose(method.anchors[number], x[0].detach(), atol=1e-6)
        assert torch.equal(method.anchors[number], method.anchors[number + 2])  # the block is filled up with copies
    assert method.used.tolist() == [1, 1, 0, 0]
    assert not method.phi.any() and not method.present.any()  # the next task begins anew
    method.expand(net)
    assert method.used.tolist() == [1, 1, 0, 0, 0, 0, 0, 0] and not method.anchors[CLASSES:].any()


def test_making_anchors_leaves_the_network_alone() -> None:
    subject = learner(net=ResNet18(CLASSES, width=2))
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 2
    subject.learn(x, y)
    before = deepcopy(subject.body.state_dict())
    subject.boundary()
    assert all(torch.equal(value, before[name]) for name, value in subject.body.state_dict().items())
    assert subject.body.training and all(p.requires_grad for p in subject.body.parameters())
    subject.learn(x, y)
    assert not torch.equal(subject.body.head.weight, before["head.weight"])


def test_a_boundary_behind_nothing_makes_no_anchors() -> None:
    subject = learner()
    for _ in range(2):
        rows = batch((0, 1))
        subject.learn(rows["x"], rows["y"])
    subject.boundary()
    subject.boundary()
    method = subject.method
    assert isinstance(method, HAL) and method.used.tolist() == [1, 1, 0, 0, *[0] * 8]
    subject.learn(rows["x"], rows["y"])
    assert all(torch.isfinite(p).all() for p in subject.body.parameters())


@pytest.mark.parametrize("stop", [1, 3, 5, 6])
def test_a_run_is_exact_to_resume_around_boundaries(stop: int, tmp_path: Path) -> None:
    """Three tasks of three batches; a stop at 3 or 6 lies behind a boundary."""

    def go(subject: Learner, start: int, end: int) -> None:
        for number in range(start, end):
            rows = batch((0, 1) if number < 3 else (1, 2, 3), seed=number)
            subject.learn(rows["x"], rows["y"])
            if number % 3 == 2:
                subject.boundary()

    assert goes_on_exactly(learner, go, stop, 9, tmp_path)


def test_what_it_refuses_in_words() -> None:
    method = HAL(strength=0.1, decay=0.5, feature_weight=0.1)
    with pytest.raises(SnclError, match="inputs must be real numbers"):
        method.prepare(nn.Embedding(3, 2), torch.zeros(2, dtype=torch.int64), generator(0))
    with pytest.raises(SnclError, match=r"must end with an nn\.Linear"):
        method.prepare(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.zeros(2, 2), generator(0))
    with pytest.raises(SnclError, match="`finetune_rows` is at least 1, not 0"):
        HAL(strength=0.1, decay=0.5, feature_weight=0.1, finetune_rows=0)


def test_the_step_size_of_the_look_ahead_is_that_of_training() -> None:
    subject = learner()
    rows: tuple[Tensor, Tensor] = (torch.randn(3, INPUTS), torch.tensor([0, 1, 2]))
    subject.learn(*rows)
    assert isinstance(subject.method, HAL) and subject.method.lr == LR
