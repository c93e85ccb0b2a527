"""One property suite over every method in the table: what a user may rely on whatever the method is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from resuming import same
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.table import METHODS, make
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.plan import plan
from sncl.streams.transforms import CropFlip
from sncl.tensors.random import generator
from sncl.training.learner import Learner

EVERY = pytest.mark.parametrize("name", list(METHODS))


def learner(name: str, net: nn.Module | None = None, seed: int = 0, capacity: int = 20, **options: object) -> Learner:
    torch.manual_seed(0)
    net = net or MLP(FEATURES, CLASSES, width=16)
    return Learner(net, name, memory=capacity, replay=8, lr=0.05, seed=seed, device="cpu", **options)  # type: ignore[arg-type]


def feed(subject: Learner, rows: list[tuple[Tensor, Tensor]], start: int = 0, stop: int | None = None) -> None:
    """Learn the batches from ``start`` to ``stop`` and say where the two tasks end, to methods that must know."""
    half = len(rows) // 2
    for number in range(start, len(rows) if stop is None else stop):
        subject.learn(*rows[number])
        if subject.method.needs_boundaries and number + 1 in (half, len(rows)):
            task = rows[:half] if number < half else rows[half:]
            subject.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def predict(subject: Learner, x: Tensor, task: int) -> Tensor:
    return subject.predict(x, task if subject.method.needs_task_at_test else None)


@EVERY
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(name: str) -> None:
    first, second, other = learner(name), learner(name), learner(name, seed=1)
    for each in (first, second, other):
        feed(each, batches(20))
    assert same(first, second)
    if METHODS[name].memory:
        assert not same(first, other)


@EVERY
def test_the_global_generator_is_neither_used_nor_moved(name: str) -> None:
    subject = learner(name)
    subject.learn(*batches(1)[0])
    before = torch.get_rng_state()
    feed(subject, batches(6))
    assert torch.equal(before, torch.get_rng_state())


@EVERY
@pytest.mark.parametrize("stop", [1, 7, 10, 19])
def test_saving_and_loading_at_any_step_changes_nothing(name: str, stop: int, tmp_path: Path) -> None:
    rows = batches(20)
    unbroken = learner(name)
    feed(unbroken, rows)
    first = learner(name)
    feed(first, rows, stop=stop)
    first.save(tmp_path / "learner.safetensors")
    second = learner(name, seed=99)  # all that is random comes from the file
    second.load(tmp_path / "learner.safetensors")
    assert second.steps == stop
    feed(second, rows, start=stop)
    assert same(unbroken, second)


@EVERY
def test_a_network_with_dropout_is_exact_to_resume_too(name: str, tmp_path: Path) -> None:
    if name == "pnn":
        pytest.skip("takes two kinds of networks only, neither with dropout")

    def make() -> Learner:
        torch.manual_seed(0)
        layers = (nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))
        return learner(name, nn.Sequential(*layers))

    rows = batches(12)
    unbroken, first, second = make(), make(), make()
    feed(unbroken, rows)
    feed(first, rows, stop=5)
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    feed(second, rows, start=5)
    assert same(unbroken, second)


@EVERY
def test_the_memory_is_never_larger_than_allowed(name: str) -> None:
    subject = learner(name, capacity=7)
    for x, y in batches(12, rows=5):
        subject.learn(x, y)
        if subject.memory is not None:
            assert isinstance(subject.memory, Memory) and len(subject.memory) <= 7
            assert all(field.shape[0] == 7 for field in subject.memory.fields.values())


@EVERY
def test_inputs_are_left_untouched(name: str) -> None:
    subject = learner(name)
    for x, y in batches(6):
        before = x.clone(), y.clone()
        subject.learn(x, y)
        assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@EVERY
def test_predicting_changes_nothing(name: str) -> None:
    first, second = learner(name), learner(name)
    for x, y in batches(8):
        first.learn(x, y)
        predict(first, x, task=0)
        second.learn(x, y)
    assert same(first, second)


@EVERY
def test_works_without_boundaries_or_says_why_not(name: str) -> None:
    subject = learner(name)
    if subject.method.needs_boundaries:
        with pytest.raises(SnclError, match=f"{name} must be told where tasks end, and digits-360 has no boundaries"):
            plan("digits-360", name)
        return
    for x, y in batches(20):
        subject.learn(x, y)
    x, y = batches(20)[-1]
    if METHODS[name].memory or name in ("sgd", "joint"):
        assert (subject.predict(x) == y).float().mean() > 0.9  # it has learned the task at hand


@EVERY
def test_batches_of_any_size_down_to_one_row(name: str) -> None:
    subject = learner(name)
    for size in (1, 8, 3, 1, 30):
        subject.learn(*batches(1, rows=size)[0])
    assert all(torch.isfinite(p).all() for p in subject.body.parameters())


@EVERY
def test_a_convolutional_network_with_batchnorm_and_augmented_bytes(name: str) -> None:
    torch.manual_seed(0)
    view = CropFlip(2, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    subject = learner(name, ResNet18(CLASSES, width=4), transform=view)
    numbers = generator(0)
    for _ in range(4):
        x = torch.randint(256, (4, 3, 16, 16), generator=numbers, dtype=torch.uint8)
        losses = subject.learn(x, torch.randint(CLASSES, (4,), generator=numbers))
        assert all(torch.isfinite(loss) for loss in losses.values())
    if subject.memory is not None:
        assert subject.memory.fields["x"].dtype == torch.uint8  # the image before augmentation
    assert predict(subject, x, task=0).shape == (4,)


@EVERY
def test_settings_are_checked_in_words(name: str) -> None:
    with pytest.raises(SnclError, match=f"{name} has no setting 'nonsense'; it takes"):
        make(name, {"nonsense": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.memory])
def test_replay_remembers_the_first_task_where_plain_training_forgets_it(name: str) -> None:
    """The point of it all, on two tasks of well separated blobs: mean over three seeds."""
    remembered, forgotten = 0.0, 0.0
    for seed in range(3):
        rows = batches(60, seed=seed)
        subject, plain = learner(name, seed=seed), learner("sgd", seed=seed)
        feed(subject, rows)
        feed(plain, rows)
        x, y = torch.cat([x for x, _ in rows[:30]]), torch.cat([y for _, y in rows[:30]])
        remembered += (predict(subject, x, task=0) == y).float().mean().item() / 3
        forgotten += (plain.predict(x) == y).float().mean().item() / 3
    assert remembered > forgotten + 0.2
