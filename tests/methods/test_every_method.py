"""One property suite over every method as it is shipped: what a user may rely on whatever the method is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from resuming import same
from shipped import FORMS, ROWS, Shipped, shipped
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.table import METHODS, make
from sncl.networks.resnet import ResNet18
from sncl.runs.plan import plan
from sncl.streams.transforms import CropFlip
from sncl.tensors.random import generator
from sncl.training.learner import Learner

EVERY = pytest.mark.parametrize("subject", [pytest.param(each, id=name) for name, each in FORMS.items()])
EVERY_ROW = pytest.mark.parametrize("subject", [pytest.param(each, id=name) for name, each in ROWS.items()])
EVERY_NAME = pytest.mark.parametrize("name", list(METHODS))


def feed(learner: Learner, stream: list[tuple[Tensor, Tensor]], start: int = 0, stop: int | None = None) -> None:
    """Learn the batches from ``start`` to ``stop`` and say where the two tasks end, to methods that must know."""
    half = len(stream) // 2
    for number in range(start, len(stream) if stop is None else stop):
        losses = learner.learn(*stream[number])
        assert all(torch.isfinite(loss) for loss in losses.values())
        if learner.method.needs_boundaries and number + 1 in (half, len(stream)):
            task = stream[:half] if number < half else stream[half:]
            learner.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def predict(learner: Learner, x: Tensor, task: int) -> Tensor:
    return learner.predict(x, task if learner.method.needs_task_at_test else None)


def resumes_exactly(
    subject: Shipped, unbroken: Learner, stream: list[tuple[Tensor, Tensor]], stop: int, path: Path
) -> bool:
    """Whether a run saved behind ``stop`` batches ends as the unbroken one: all that is random is in the file."""
    first, second = subject.learner(), subject.learner(seed=99)
    feed(first, stream, stop=stop)
    first.save(path)
    second.load(path)
    assert second.steps == stop
    feed(second, stream, start=stop)
    return same(unbroken, second)


@EVERY_NAME
def test_the_table_says_of_a_method_what_it_says_itself(name: str) -> None:
    method = make(name)
    assert METHODS[name].boundaries == method.needs_boundaries
    assert METHODS[name].task_at_test == method.needs_task_at_test


@EVERY_ROW
def test_every_row_of_settings_learns_and_resumes_exactly(subject: Shipped, tmp_path: Path) -> None:
    unbroken, stream = subject.learner(), subject.batches(12)
    feed(unbroken, stream)
    assert resumes_exactly(subject, unbroken, stream, 7, tmp_path / "learner.safetensors")
    assert all(torch.isfinite(value).all() for value in unbroken.net.parameters())
    x, _ = stream[-1]
    assert predict(unbroken, x, task=1).shape == (len(x),)


@EVERY
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(subject: Shipped) -> None:
    first, second, other = subject.learner(), subject.learner(), subject.learner(seed=1)
    for each in (first, second, other):
        feed(each, subject.batches(20))
    assert same(first, second)
    if METHODS[subject.method].memory:
        assert not same(first, other)


@EVERY
def test_the_global_generator_is_neither_used_nor_moved(subject: Shipped) -> None:
    learner = subject.learner()
    learner.learn(*subject.batches(1)[0])
    before = torch.get_rng_state()
    feed(learner, subject.batches(6))
    assert torch.equal(before, torch.get_rng_state())


@EVERY
def test_saving_and_loading_at_any_step_changes_nothing(subject: Shipped, tmp_path: Path) -> None:
    unbroken, stream = subject.learner(), subject.batches(20)
    feed(unbroken, stream)
    for stop in (1, 10, 19):
        assert resumes_exactly(subject, unbroken, stream, stop, tmp_path / "learner.safetensors")


@EVERY
def test_a_network_with_dropout_is_exact_to_resume_too(subject: Shipped, tmp_path: Path) -> None:
    if subject.method == "pnn" or subject.resnet:
        pytest.skip("takes certain networks only, none with dropout")

    def made() -> Learner:
        torch.manual_seed(0)
        layers = (nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))
        return subject.learner(nn.Sequential(*layers))

    stream = subject.batches(12)
    unbroken, first, second = made(), made(), made()
    feed(unbroken, stream)
    feed(first, stream, stop=5)
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    feed(second, stream, start=5)
    assert same(unbroken, second)


@EVERY
def test_the_memory_is_never_larger_than_allowed(subject: Shipped) -> None:
    learner = subject.learner(memory=7)
    for x, y in subject.batches(12, rows=5):
        learner.learn(x, y)
        if learner.memory is not None:
            assert isinstance(learner.memory, Memory) and len(learner.memory) <= 7
            assert all(field.shape[0] == 7 for field in learner.memory.fields.values())


@EVERY
def test_inputs_are_left_untouched(subject: Shipped) -> None:
    learner = subject.learner()
    for x, y in subject.batches(6):
        before = x.clone(), y.clone()
        learner.learn(x, y)
        assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@EVERY
def test_predicting_changes_nothing(subject: Shipped) -> None:
    first, second = subject.learner(), subject.learner()
    for x, y in subject.batches(8):
        first.learn(x, y)
        predict(first, x, task=0)
        second.learn(x, y)
    assert same(first, second)


@EVERY_NAME
def test_works_without_boundaries_or_says_why_not(name: str) -> None:
    learner = shipped(name, {}).learner(lr=0.05)
    if learner.method.needs_boundaries:
        with pytest.raises(SnclError, match=f"{name} must be told where tasks end, and digits-360 has no boundaries"):
            plan("digits-360", name)
        return
    stream = batches(40 if METHODS[name].plain else 20)  # labels that compete among themselves take longer
    for x, y in stream:
        learner.learn(x, y)
    x, y = (torch.cat(parts) for parts in zip(*stream[len(stream) // 2 :], strict=True))
    if METHODS[name].memory or name in ("sgd", "joint"):
        assert (learner.predict(x) == y).float().mean() > 0.9  # it has learned the task at hand


@EVERY
def test_batches_of_any_size_down_to_one_sample(subject: Shipped) -> None:
    learner = subject.learner()
    for size in (1, 8, 3, 1, 30):
        learner.learn(*subject.batches(1, rows=size)[0])
    assert all(torch.isfinite(p).all() for p in learner.body.parameters())


@EVERY
def test_a_convolutional_network_with_batchnorm_and_augmented_bytes(subject: Shipped) -> None:
    torch.manual_seed(0)
    transform = CropFlip(2, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    learner = subject.learner(ResNet18(CLASSES, width=4), transform=transform)
    numbers = generator(0)
    for _ in range(4):
        x = torch.randint(256, (4, 3, 16, 16), generator=numbers, dtype=torch.uint8)
        losses = learner.learn(x, torch.randint(CLASSES, (4,), generator=numbers))
        assert all(torch.isfinite(loss) for loss in losses.values())
    if learner.memory is not None:
        assert learner.memory.fields["x"].dtype == torch.uint8  # the image before augmentation
    assert predict(learner, x, task=0).shape == (4,)


@EVERY_NAME
def test_settings_are_checked_in_words(name: str) -> None:
    with pytest.raises(SnclError, match=f"{re.escape(name)} has no setting 'nonsense'; it takes"):
        make(name, {"nonsense": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.memory])
def test_replay_remembers_the_first_task_where_plain_training_forgets_it(name: str) -> None:
    """The point of it all, on two tasks of well separated blobs: mean over three seeds."""
    remembered, forgotten = 0.0, 0.0
    for seed in range(3):
        stream = batches(60, seed=seed)
        subject, plain = (shipped(each, {}).learner(seed=seed, lr=0.05) for each in (name, "sgd"))
        feed(subject, stream)
        feed(plain, stream)
        x, y = torch.cat([x for x, _ in stream[:30]]), torch.cat([y for _, y in stream[:30]])
        remembered += (predict(subject, x, task=0) == y).float().mean().item() / 3
        forgotten += (plain.predict(x) == y).float().mean().item() / 3
    assert remembered > forgotten + 0.2
