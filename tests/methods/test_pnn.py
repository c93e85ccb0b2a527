"""Progressive networks: nothing that was learned changes any more."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.pnn import PNN
from sncl.networks.mlp import MLP
from sncl.networks.progressive import MLPColumn, Progressive, ResNetColumn
from sncl.networks.resnet import ResNet18
from sncl.tensors.random import generator
from sncl.training.learner import Learner

INPUTS, CLASSES, WIDTH = 6, 4, 5


def make(kind: str = "mlp", seed: int = 0) -> Learner:
    torch.manual_seed(0)
    net = MLP(INPUTS, CLASSES, WIDTH) if kind == "mlp" else ResNet18(CLASSES, width=4)
    return Learner(net, PNN(), lr=0.1, seed=seed, device="cpu")


def rows(kind: str, task: int, number: int) -> tuple[Tensor, Tensor]:
    numbers = generator(0, task, number)
    shape = (INPUTS,) if kind == "mlp" else (3, 8, 8)
    y = torch.randint(2, (4,), generator=numbers) + 2 * (task % 2)
    return torch.randn(4, *shape, generator=numbers) + y.view(-1, *[1] * len(shape)), y


def learn(subject: Learner, kind: str, task: int, batches: int = 3) -> None:
    for number in range(batches):
        subject.learn(*rows(kind, task, number))


def columns(subject: Learner) -> Progressive:
    assert isinstance(subject.net.body, Progressive)
    return subject.net.body


@pytest.mark.parametrize("kind", ["mlp", "resnet"])
def test_old_columns_and_what_they_answer_never_change(kind: str) -> None:
    subject, x = make(kind), rows(kind, 0, 99)[0]
    answers: list[Tensor] = []
    weights: list[dict[str, Tensor]] = []
    for task in range(3):
        learn(subject, kind, task)
        before = subject.logits(x, task)
        subject.boundary()
        assert torch.equal(subject.logits(x, task), before)
        answers.append(before)
        weights.append(deepcopy(columns(subject).state_dict()))
        new = f"later.{task}."
        weights[-1] = {name: value for name, value in weights[-1].items() if not name.startswith(new)}
    learn(subject, kind, 3)
    after = columns(subject).state_dict()
    for task in range(3):
        assert torch.equal(subject.logits(x, task), answers[task])  # no forgetting at all
        assert all(torch.equal(after[name], value) for name, value in weights[task].items())  # BatchNorm's too
    assert not torch.equal(subject.logits(x, 3), answers[2])


@pytest.mark.parametrize("kind", ["mlp", "resnet"])
def test_only_the_newest_column_learns_and_all_of_it_does(kind: str) -> None:
    subject = make(kind)
    learn(subject, kind, 0)
    subject.boundary()
    learn(subject, kind, 1)
    subject.boundary()
    before = {name: value.clone() for name, value in columns(subject).named_parameters()}
    (group,) = subject.method.parameter_groups(subject.net, 0.1)
    assert {id(each) for each in group["params"]} == {id(each) for each in columns(subject).newest.parameters()}
    learn(subject, kind, 2)
    for name, value in columns(subject).named_parameters():
        assert torch.equal(value, before[name]) != name.startswith("later.1."), name
        assert value.requires_grad == name.startswith("later.1.")
    assert [column.training for column in (columns(subject).first, *columns(subject).later)] == [False, False, True]


def test_the_first_column_is_the_network_given_bit_for_bit() -> None:
    for net, x in (
        (MLP(INPUTS, CLASSES), torch.randn(3, INPUTS)),
        (ResNet18(CLASSES, width=2), torch.randn(3, 3, 8, 8)),
    ):
        assert torch.equal(Progressive(net)(x), net(x))
        assert Progressive(net).first.net is net


def test_the_columns_of_an_mlp_follow_the_equations() -> None:
    net = Progressive(MLP(INPUTS, CLASSES, WIDTH))
    net.grow()
    net.grow()
    x = torch.randn(3, INPUTS)
    first, second, third = net.first, *net.later
    assert isinstance(first, MLPColumn) and isinstance(second, MLPColumn) and isinstance(third, MLPColumn)

    def lateral(module: nn.Module, old: Tensor) -> Tensor:
        scale, reading, _, writing = module
        hidden = (scale.factor * old) @ reading.weight.T + reading.bias
        assert writing.bias is None
        return hidden.relu() @ writing.weight.T

    hidden1, hidden2 = [], []
    for column in (first, second, third):
        map1, map2, head = column.net.layer1[0], column.net.layer2[0], column.net.head
        h1 = map1(x).relu()
        inner, outer = map2(h1), 0.0
        if hidden1:
            inner = inner + lateral(column.laterals[0], torch.cat(hidden1, 1))
            outer = lateral(column.laterals[1], torch.cat(hidden2, 1))
        h2 = inner.relu()
        logits = head(h2) + outer
        hidden1.append(h1)
        hidden2.append(h2)
        assert torch.allclose(net(x, len(hidden1) - 1), logits, atol=1e-6)
    assert torch.equal(net(x), net(x, 2)) and torch.equal(net(x, 7), net(x, 2))  # no such column: the newest


def test_the_columns_of_a_resnet_add_a_lateral_stage_to_each_stage() -> None:
    net = Progressive(ResNet18(CLASSES, width=2)).eval()
    net.grow()
    x = torch.randn(3, 3, 8, 8)
    second = net.later[0]
    assert isinstance(second, ResNetColumn)
    old = [net.first.net.layer1(net.first.net.stem(x))]
    for stage in (net.first.net.layer2, net.first.net.layer3, net.first.net.layer4):
        old.append(stage(old[-1]))
    h = second.net.layer1(second.net.stem(x))
    for number, stage in enumerate((second.net.layer2, second.net.layer3, second.net.layer4)):
        scale, mix, _, copy = second.laterals[number]
        h = stage(h) + copy(mix(scale.factor[:, None, None] * old[number]).relu())
    scale, mix, _, head = second.laterals[3]
    logits = second.net.head(h.mean((2, 3))) + head(mix(scale.factor * old[3].mean((2, 3))).relu())
    assert torch.allclose(net(x), logits, atol=1e-6)


def test_a_new_column_has_its_own_weights_of_the_same_kind_and_the_laterals() -> None:
    torch.manual_seed(0)
    net = Progressive(MLP(INPUTS, CLASSES, WIDTH))
    own = sum(p.numel() for p in net.parameters())
    for columns in (1, 2, 3):
        before = sum(p.numel() for p in net.parameters())
        net.grow()
        grown = sum(p.numel() for p in net.parameters()) - before
        reading = columns * WIDTH * (WIDTH + 1) + WIDTH  # the scale and the first map of an adaptor
        assert grown == own + 2 * reading + WIDTH * (WIDTH + CLASSES)
    newest = net.newest
    assert isinstance(newest, MLPColumn) and not torch.equal(newest.net.head.weight, net.first.net.head.weight)
    assert (newest.net.head.bias == 0).all() and newest.net.layer1[0].weight.abs().max() <= (6 / 11) ** 0.5  # Xavier
    factor = newest.laterals[0][0].factor
    assert (factor >= 0).all() and (factor < 0.1).all()


@pytest.mark.parametrize("kind", ["mlp", "resnet"])
@pytest.mark.parametrize("stop", [1, 3, 5, 6])
def test_a_run_is_exact_to_resume_around_boundaries(kind: str, stop: int, tmp_path: Path) -> None:
    """Three tasks of three batches; a stop at 3 or 6 lies behind a boundary."""

    def go(subject: Learner, start: int, end: int) -> None:
        for number in range(start, end):
            subject.learn(*rows(kind, number // 3, number % 3))
            if number % 3 == 2:
                subject.boundary()

    assert goes_on_exactly(lambda seed: make(kind, seed), go, stop, 9, tmp_path)


def test_what_it_refuses_in_words() -> None:
    with pytest.raises(SnclError, match="PNN knows how to put columns beside MLP and ResNet18, not Sequential"):
        PNN().prepare(nn.Sequential(nn.Linear(2, 2)), torch.zeros(2, 2), generator(0))
    subject = make()
    learn(subject, "mlp", 0)
    with pytest.raises(SnclError, match="PNN predicts only when told the task"):
        subject.predict(torch.zeros(2, INPUTS))
