"""iCaRL against its equations, written out the slow way."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.methods.icarl import ICaRL, herd
from sncl.methods.method import TaskEnd
from sncl.networks.last import LAST, tap_last
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.streams.transforms import Identity
from sncl.tensors.random import generator
from sncl.training.learner import Learner

INPUTS, CLASSES, WIDTH = 6, 4, 5


def prepared(method: ICaRL) -> Tapped:
    torch.manual_seed(0)
    return method.prepare(MLP(INPUTS, CLASSES, WIDTH), torch.zeros(2, INPUTS), generator(0))


def task(classes: tuple[int, ...], rows: int = 30, seed: int = 0) -> tuple[Tensor, Tensor]:
    numbers = generator(seed, classes)
    y = torch.tensor(classes)[torch.randint(len(classes), (rows,), generator=numbers)]
    return torch.randn(rows, INPUTS, generator=numbers) + y[:, None], y


def learner(memory: int = 10, seed: int = 0, decay: float = 1e-3) -> Learner:
    torch.manual_seed(0)
    return Learner(MLP(INPUTS, CLASSES, WIDTH), ICaRL(decay), memory=memory, lr=0.1, seed=seed, device="cpu")


def learn(subject: Learner, x: Tensor, y: Tensor) -> None:
    for rows, labels in zip(x.split(5), y.split(5), strict=True):
        subject.learn(rows, labels)


def test_herding_is_the_greedy_loop_over_explicit_means() -> None:
    features = torch.randn(20, 3, generator=generator(0))
    mean = features.mean(0)
    chosen: list[int] = []
    for _ in range(8):
        left = [row for row in range(20) if row not in chosen]
        apart = [float((features[[*chosen, row]].mean(0) - mean).norm()) for row in left]
        chosen.append(left[apart.index(min(apart))])
    assert herd(features, 8).tolist() == chosen
    assert sorted(herd(features, 99).tolist()) == list(range(20))  # all there are, none twice


def test_targets_are_labels_of_new_classes_and_old_answers_of_older_ones() -> None:
    method = ICaRL(decay=0.01)
    net = prepared(method)
    old = MLP(INPUTS, CLASSES, WIDTH)
    method.old.load_state_dict(old.state_dict())
    method.learned[:2] = method.seen[:2] = True
    x, y = task((2,), rows=3)
    now, past = {"x": x, "y": y}, {"x": torch.randn(2, INPUTS), "y": torch.tensor([0, 1])}
    losses = method.observe(net, now, (past,)).losses

    both, total = torch.cat([x, past["x"]]), 0.0
    answers, before = net.body(both).sigmoid(), old(both).sigmoid()
    for row in range(5):
        for column in range(3):  # class 3 has not been seen
            target = before[row, column] if column < 2 else float(row < 3)
            p = answers[row, column]
            total = total - (target * p.log() + (1 - target) * (1 - p).log())
    assert torch.allclose(losses["labels"], total / 15)
    squares = torch.stack([(weight**2).sum() for weight in net.body.parameters()]).sum()
    assert torch.allclose(losses["decay"], 0.01 * squares)

    first = method.observe(net, now, ()).losses["labels"]  # no old network yet: plain labels
    assert torch.allclose(
        first, F.binary_cross_entropy_with_logits(net.body(x)[:, :3], F.one_hot(y, CLASSES)[:, :3].float())
    )


def test_without_decay_there_is_no_such_term() -> None:
    method = ICaRL(decay=0.0)
    x, y = task((0, 1))
    assert set(method.observe(prepared(method), {"x": x, "y": y}, ()).losses) == {"labels"}


def test_at_a_boundary_the_memory_holds_the_herds_and_older_ones_shrink_from_their_end() -> None:
    subject = learner(memory=11)
    x, y = task((0, 1))
    learn(subject, x, y)
    assert subject.memory is not None and len(subject.memory) == 0
    subject.boundary(x, y)
    first = {name: value.clone() for name, value in subject.memory.content().items()}
    assert first["y"].tolist() == [0] * 5 + [1] * 5  # 11 // 2 each
    hidden = subject.body.layer2(subject.body.layer1(x))
    for label in (0, 1):
        rows = (y == label).nonzero()[:, 0]
        assert torch.equal(first["x"][first["y"] == label], x[rows[herd(hidden[rows], 5)]])

    x, y = task((2, 3))
    learn(subject, x, y)
    subject.boundary(x, y)
    second = subject.memory.content()
    assert second["y"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]  # 11 // 4 each
    assert second["order"].tolist() == [0, 1] * 4
    for label in (0, 1):
        assert torch.equal(second["x"][second["y"] == label], first["x"][first["y"] == label][:2])


def test_a_class_that_comes_again_is_herded_anew() -> None:
    subject = learner(memory=6)
    for seed in (0, 1):
        x, y = task((0, 1), seed=seed)
        learn(subject, x, y)
        subject.boundary(x, y)
    assert subject.memory is not None
    kept = subject.memory.content()
    assert kept["y"].tolist() == [0] * 3 + [1] * 3
    assert all((x == row).all(1).any() for row in kept["x"])


def test_the_answer_is_the_class_with_the_nearest_mean_of_exemplars() -> None:
    subject = learner()
    x, y = task((1, 3))
    learn(subject, x, y)
    assert torch.equal(subject.logits(x), subject.body(x))  # no exemplars yet
    subject.boundary(x, y)
    assert subject.memory is not None
    stored = subject.memory.content()
    hidden = nn.Sequential(subject.body.layer1, subject.body.layer2)
    with torch.no_grad():
        logits = subject.logits(x)
        for label in (1, 3):
            mean = hidden(stored["x"][stored["y"] == label]).mean(0)
            assert torch.allclose(logits[:, label], -((hidden(x) - mean) ** 2).sum(1), atol=1e-5)
    assert (logits[:, [0, 2]] == torch.finfo(torch.float32).min).all()
    assert set(subject.predict(x).tolist()) <= {1, 3}


def test_the_old_network_is_that_of_the_boundary_and_does_not_learn() -> None:
    subject = learner()
    method = subject.method
    assert isinstance(method, ICaRL)
    x, y = task((0, 1))
    learn(subject, x, y)
    subject.boundary(x, y)
    then = deepcopy(subject.body.state_dict())
    assert method.learned.tolist() == method.kept.tolist() == [True, True, False, False]
    learn(subject, *task((2, 3)))
    assert all(torch.equal(value, then[name]) for name, value in method.old.state_dict().items())
    assert not torch.equal(subject.body.head.weight, then["head.weight"])
    assert not method.old.training and not any(p.requires_grad for p in method.old.parameters())


def test_batchnorm_sees_the_exemplars_with_the_batch() -> None:
    torch.manual_seed(0)
    net, method = ResNet18(CLASSES, width=2), ICaRL(decay=0.0)
    tapped = method.prepare(net, torch.zeros(2, 3, 8, 8), generator(0)).train()
    method.learned[:2] = True
    x, past = torch.randn(4, 3, 8, 8), torch.randn(1, 3, 8, 8)
    seen: list[int] = []
    net.stem.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    method.observe(tapped, {"x": x, "y": torch.tensor([2, 2, 3, 3])}, ({"x": past, "y": torch.tensor([0])},))
    assert seen == [5]


@pytest.mark.parametrize("stop", [0, 3, 6, 8])
def test_a_run_is_exact_to_resume_around_a_boundary(stop: int, tmp_path: Path) -> None:
    """Six batches, a boundary behind the sixth, six more; stop 6 lies behind the boundary, 3 and 8 inside a task."""
    tasks = [task((0, 1)), task((2, 3))]

    def go(subject: Learner, start: int, end: int) -> None:
        if start == 0:
            subject.prepare(tasks[0][0])  # so that it can be saved before its first batch
        for number in range(start, end):
            x, y = tasks[number // 6]
            part = slice(5 * (number % 6), 5 * (number % 6) + 5)
            subject.learn(x[part], y[part])
            if number % 6 == 5:
                subject.boundary(x, y)

    assert goes_on_exactly(lambda seed: learner(seed=seed), go, stop, 12, tmp_path)


def test_a_boundary_right_after_loading_knows_the_size_of_the_memory(tmp_path: Path) -> None:
    first, second = learner(), learner()
    x, y = task((0, 1))
    learn(first, x, y)
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    for each in (first, second):
        each.boundary(x, y)
        assert each.memory is not None and len(each.memory) == 10


def test_the_last_features_of_any_network_that_ends_with_a_linear_layer() -> None:
    x = torch.randn(3, 3, 8, 8)
    net = ResNet18(CLASSES, width=2).eval()
    maps = net.layer4(net.layer3(net.layer2(net.layer1(net.stem(x)))))
    tapped = tap_last(net, x)
    assert torch.equal(tapped(x).features[LAST], maps.mean((2, 3)))
    twin = deepcopy(tapped)
    assert torch.equal(twin(x).features[LAST], maps.mean((2, 3)))  # the copy reads itself
    own = nn.Sequential(nn.Linear(INPUTS, 3), nn.Tanh(), nn.Linear(3, 2))
    assert torch.equal(tap_last(own, x[:, 0, 0, :6])(x[:, 0, 0, :6]).features[LAST], own[:2](x[:, 0, 0, :6]))


def test_a_tap_of_the_last_features_can_be_taken_off() -> None:
    net, x = MLP(INPUTS, CLASSES, WIDTH), torch.zeros(2, INPUTS)
    for _ in range(3):
        tap_last(net, x).remove()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())


def test_what_it_refuses_in_words() -> None:
    with pytest.raises(SnclError, match=r"must end with an nn\.Linear"):
        tap_last(nn.Sequential(nn.Linear(INPUTS, 3), nn.LogSoftmax(1)), torch.zeros(2, INPUTS))
    with pytest.raises(SnclError, match="`exemplars_per_batch` is at least 1, not 0"):
        ICaRL(decay=0.0, exemplars_per_batch=0)
    subject = learner(memory=1)
    x, y = task((0, 1))
    learn(subject, x, y)
    with pytest.raises(SnclError, match="a `memory` of 1 has no room for an exemplar of each of 2 classes"):
        subject.boundary(x, y)
    with pytest.raises(SnclError, match="looks at a task again when it ends"):
        subject.boundary()


def test_images_are_looked_at_as_in_evaluation() -> None:
    """The features of exemplars and means come from the test transform, never from an augmented image."""
    method = ICaRL(decay=0.0)
    net = prepared(method)
    x, y = task((0, 1))

    def refuse(_: Tensor) -> Tensor:
        raise AssertionError("augmented")

    rows, memory = {"x": x, "y": y}, {"x": x[:0], "y": y[:0]}
    content = method.at_boundary(net, TaskEnd(rows, memory, 4, refuse, Identity().eval, generator(0)))
    assert content["y"].tolist() == [0, 0, 1, 1]
