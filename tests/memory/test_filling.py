"""A memory takes what it holds, not what it may hold, and none of that changes what it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from resuming import same
from torch import Tensor, nn

from sncl import Learner, SNCLClassifier, SnclError
from sncl.memory import memory as memory_module
from sncl.memory.admission import LossAwareReservoir, PerTask, Reservoir
from sncl.memory.diverse import GradientDiverse
from sncl.memory.drawing import draw_distinct, latest
from sncl.memory.memory import FIRST_ROWS, Memory
from sncl.tensors import room
from sncl.tensors.fields import Fields


def batch(first: int, count: int) -> Fields:
    number = torch.arange(first, first + count)
    score = (number % 7).float() / 7 + 0.5
    return {
        "x": number[:, None].repeat(1, 3).float(),
        "y": number % 5,
        "loss": (number % 11).float(),
        "score": score,
        "batch_score": torch.full((count,), 0.5),
    }


def offered(memory: Memory, sizes: list[int]) -> Memory:
    numbers, first = torch.Generator().manual_seed(0), 0
    for count in sizes:
        memory.admit(batch(first, count), torch.rand(count, 3, dtype=torch.float64, generator=numbers))
        first += count
    return memory


RULES = {"reservoir": Reservoir, "losses": LossAwareReservoir, "tasks": lambda: PerTask(2), "scores": GradientDiverse}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "sizes", [[10] * 5, [7] * 150, [400, 500, 600], [1000, 3]], ids=["few", "many", "large", "at once"]
)
def test_growing_admits_the_same_samples(rule: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = offered(Memory(900, RULES[rule]()), sizes)
    monkeypatch.setattr(memory_module, "FIRST_ROWS", 900)  # all at once, as it was before
    theirs = offered(Memory(900, RULES[rule]()), sizes)
    assert theirs.allocated == 900 and ours.count == theirs.count and len(ours) == len(theirs)
    assert all(torch.equal(value, theirs.content()[name]) for name, value in ours.content().items())
    assert len(ours) <= ours.allocated <= max(FIRST_ROWS, 2 * len(ours))


def test_a_memory_of_any_size_costs_what_it_holds() -> None:
    memory = offered(Memory(10**15, Reservoir()), [100] * 20)
    assert len(memory) == 2000 and memory.allocated == 2048
    assert memory.content()["x"][:, 0].tolist() == list(range(2000))
    assert sum(value.numel() for value in memory.state().values()) < 2000 * 20


def test_a_learner_with_a_huge_memory_learns_replays_and_resumes_exactly(tmp_path: Path) -> None:
    def make() -> Learner:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        return Learner(net, "sncl", memory=10**9, replay=8, lr=0.05, device="cpu")

    numbers = torch.Generator().manual_seed(2)
    stream = [(torch.randn(16, 6, generator=numbers), torch.randint(3, (16,), generator=numbers)) for _ in range(24)]
    unbroken, first, second = make(), make(), make()
    for number, each in enumerate(stream):
        unbroken.learn(*each)
        (first if number < 11 else second).learn(*each)
        if number == 10:
            first.save(tmp_path / "saved")
            second.load(tmp_path / "saved")
    assert same(unbroken, second) and len(unbroken.memory or ()) == 384
    assert (tmp_path / "saved").stat().st_size < 100_000


def test_an_estimator_with_a_large_memory_saves_a_small_file(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    X, y = numbers.normal(size=(740, 30)), numbers.integers(0, 4, 740)
    model = SNCLClassifier(memory=1_000_000, random_state=0).partial_fit(X, y)
    model.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 2_000_000  # was 664 MB
    again = SNCLClassifier.load(tmp_path / "model")
    assert (again.partial_fit(X, y).predict_proba(X) == model.partial_fit(X, y).predict_proba(X)).all()


def test_a_state_of_full_length_is_read_as_before() -> None:
    """Earlier versions stored empty slots, too."""
    memory = offered(Memory(40, Reservoir()), [10, 3])
    old = memory.state()
    old = {
        name: value if name == "count" else torch.cat([value, value.new_zeros(27, *value.shape[1:])])
        for name, value in old.items()
    }
    copy = Memory(40, Reservoir())
    copy.load(old)
    assert all(torch.equal(value, copy.state()[name]) for name, value in memory.state().items())
    more = torch.rand(50, 3, dtype=torch.float64)
    for each in (memory, copy):
        each.admit(batch(100, 50), more)
    assert all(torch.equal(value, copy.state()[name]) for name, value in memory.state().items())


@pytest.mark.parametrize("rows", [0, 12, 14, 39, 41])
def test_a_state_of_another_length_is_refused(rows: int) -> None:
    memory = offered(Memory(40, Reservoir()), [10, 3])
    state = {
        name: value if name == "count" else value.new_zeros(rows, *value.shape[1:])
        for name, value in memory.state().items()
    }
    before = memory.state()
    with pytest.raises(SnclError, match="does not hold the 13 samples it counted"):
        memory.load(state)
    assert all(torch.equal(value, memory.state()[name]) for name, value in before.items())


def test_what_the_machine_does_not_have_is_refused_before_anything_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Sequential(nn.Linear(6, 3)), "er", memory=10**12, device="cpu")
    x, y = torch.randn(200, 6), torch.randint(3, (200,))
    learner.learn(x, y)
    before = learner.state()
    monkeypatch.setattr(room, "available_memory", lambda: 10_000)
    with pytest.raises(
        SnclError, match=r"512 of 1,000,000,000,000 samples in memory would take .*; use a smaller `memory`"
    ):
        learner.learn(x, y)
    assert not learner.interrupted
    assert all(torch.equal(value, learner.state()[name]) for name, value in before.items())
    learner.learn(x[:50], y[:50])  # for which there is room
    monkeypatch.undo()
    learner.learn(x, y)
    assert len(learner.memory or ()) == 450


def test_slots_of_a_large_memory_are_drawn_evenly_and_none_twice() -> None:
    numbers = torch.Generator().manual_seed(0)
    asked: list[int] = []

    def uniform(count: int) -> Tensor:
        asked.append(count)
        return torch.rand(count, generator=numbers, dtype=torch.float64)

    times = torch.zeros(50, dtype=torch.int64)
    for _ in range(4000):
        slots = draw_distinct(10, 50, uniform)
        assert len(slots) == 10 == len(slots.unique())
        times[slots] += 1
    expected = 4000 * 10 / 50
    assert float(((times - expected).square() / expected).sum()) < 85.4  # chi-square, 49 degrees of freedom, p = 0.001
    asked.clear()
    assert int(draw_distinct(32, 10**9, uniform).max()) > 10**8 and sum(asked) <= 64


def test_the_latest_of_each_slot_stays() -> None:
    source, taken = latest(torch.tensor([4, 9, 2, 4, 9, 10, 2, 4]), 10)
    assert dict(zip(taken.tolist(), source.tolist(), strict=True)) == {2: 6, 4: 7, 9: 4}
    source, taken = latest(torch.tensor([10, 10]), 10)
    assert len(source) == len(taken) == 0
