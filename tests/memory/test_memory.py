"""The memory keeps what it is given, no more than its capacity, and draws what is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sncl.errors import SnclError
from sncl.memory.admission import Admission, LossAwareReservoir, PerTask, Reservoir, reservoir_slots
from sncl.memory.by_loss import (
    freed_slots,
    pick_by_loss,
    picked_by_sorting,
    picked_on_the_host,
    shares,
)
from sncl.memory.drawing import latest
from sncl.memory.memory import Memory
from sncl.tensors.random import generator


def batch(start: int, count: int, classes: int = 5) -> dict[str, torch.Tensor]:
    number = torch.arange(start, start + count)
    return {"x": number.clone(), "y": number % classes, "loss": (number % 7).float()}


def textbook_reservoir(capacity: int, uniform: list[float]) -> list[int]:
    """Vitter's algorithm R as the textbook has it, one row at a time."""
    kept: list[int] = []
    for number, u in enumerate(uniform):
        if number < capacity:
            kept.append(number)
        else:
            slot = int(u * (number + 1))
            if slot < capacity:
                kept[slot] = number
    return kept


@given(st.integers(1, 20), st.lists(st.integers(1, 17), min_size=1, max_size=12), st.integers(0, 1000))
def test_reservoir_equals_the_textbook_whatever_the_batches(capacity: int, sizes: list[int], seed: int) -> None:
    uniform = torch.rand(sum(sizes), 3, generator=generator(seed), dtype=torch.float64)
    memory = Memory(capacity, Reservoir())
    start = 0
    for size in sizes:
        memory.admit(batch(start, size), uniform[start : start + size])
        start += size
    kept = memory.fields["x"][: len(memory)].tolist()
    assert kept == textbook_reservoir(capacity, uniform[:, 0].tolist())


def test_reservoir_keeps_every_row_equally_often() -> None:
    times = torch.zeros(60)
    for seed in range(2000):
        memory = Memory(12, Reservoir())
        memory.admit(batch(0, 60), torch.rand(60, 3, generator=generator(seed), dtype=torch.float64))
        times[memory.fields["x"]] += 1
    assert (times / 2000 - 0.2).abs().max() < 0.04  # 4.5 standard deviations


@pytest.mark.parametrize("admission", [Reservoir(), LossAwareReservoir()])
@given(
    capacity=st.integers(1, 30), sizes=st.lists(st.integers(1, 25), min_size=1, max_size=10), seed=st.integers(0, 99)
)
def test_never_more_than_capacity_and_no_row_twice(
    admission: Admission, capacity: int, sizes: list[int], seed: int
) -> None:
    memory = Memory(capacity, admission)
    numbers = generator(seed)
    start = 0
    for size in sizes:
        memory.admit(batch(start, size), torch.rand(size, 3, generator=numbers, dtype=torch.float64))
        start += size
        kept = memory.fields["x"][: len(memory)].tolist()
        assert len(memory) == min(start, capacity)
        assert all(field.shape[0] == capacity for field in memory.fields.values())
        assert len(set(kept)) == len(kept) and max(kept) < start
    assert torch.equal(memory.fields["y"][: len(memory)], memory.fields["x"][: len(memory)] % 5)  # rows stay whole


def slow_pick(label: list[int], loss: list[float], capacity: int, offset: float, turn: float) -> list[bool]:
    """Algorithm 1, step 5 to 9, written with plain loops."""
    classes = sorted(set(label))
    sizes = {c: label.count(c) for c in classes}
    level = max(t for t in range(capacity + 1) if sum(min(sizes[c], t) for c in classes) <= capacity)
    share = {c: min(sizes[c], level) for c in classes}
    above = [c for c in classes if sizes[c] > level]
    left = capacity - sum(share.values())
    for place, c in enumerate(above):
        if (place - int(turn * len(above))) % len(above) < left:
            share[c] += 1
    keep = [False] * len(label)
    for c in classes:
        members = sorted((row for row in range(len(label)) if label[row] == c), key=lambda row: (loss[row], row))
        for rank, row in enumerate(members):
            high = (rank + 1) * share[c] / sizes[c] + offset
            low = rank * share[c] / sizes[c] + offset
            keep[row] = int(high) > int(low)
    return keep


@pytest.mark.parametrize("pick", [picked_on_the_host, picked_by_sorting])
@given(st.data())
def test_picking_by_loss_equals_plain_loops(pick: Callable[..., torch.Tensor], data: st.DataObject) -> None:
    rows = data.draw(st.integers(2, 40))
    label = data.draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    some = [-2.5, -1.0, -1e-9, -0.0, 0.0, 1e-9, 1.0, 2.0, 3.5, 1e30]
    loss = data.draw(st.lists(st.sampled_from(some), min_size=rows, max_size=rows))
    capacity = data.draw(st.integers(1, rows - 1))
    offset, turn = data.draw(st.floats(0, 0.999)), data.draw(st.floats(0, 0.999))
    picked = pick(torch.tensor(label), torch.tensor(loss), capacity, offset, turn)
    assert picked.tolist() == slow_pick(label, loss, capacity, offset, turn)
    assert int(picked.sum()) == capacity


def test_even_intervals_over_the_sorted_losses_by_hand() -> None:
    label = torch.zeros(8, dtype=torch.long)
    loss = torch.tensor([0.8, 0.1, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4])
    kept = loss[pick_by_loss(label, loss, 4, offset=0.0, turn=0.0)].sort().values
    assert torch.equal(kept, torch.tensor([0.2, 0.4, 0.6, 0.8]))  # every second one


@pytest.mark.parametrize(
    ("counts", "capacity", "expected"),
    [([10, 10], 10, [5, 5]), ([2, 10, 10], 12, [2, 5, 5]), ([1, 1, 20], 10, [1, 1, 8]), ([7, 0, 7], 6, [3, 0, 3])],
)
def test_shares_are_equal_and_shortfalls_go_to_the_others(
    counts: list[int], capacity: int, expected: list[int]
) -> None:
    assert shares(torch.tensor(counts), capacity, turn=0.0).tolist() == expected


@given(st.integers(1, 12), st.data())
def test_who_enters_takes_the_slots_that_are_freed_in_their_order(capacity: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(capacity + data.draw(st.integers(1, 5)))))
    stays = torch.tensor(order) < capacity
    freed = [slot for slot in range(capacity) if not stays[slot]]
    wanted = [freed.pop(0) if each else capacity for each in stays[capacity:]]
    assert freed_slots(stays, capacity).tolist() == wanted


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_of_samples_that_claim_one_slot_the_latest_stays(slots: list[int]) -> None:
    source, taken = latest(torch.tensor(slots), 4)
    wanted = {slot: place for place, slot in enumerate(slots) if slot < 4}
    assert dict(zip(taken.tolist(), source.tolist(), strict=True)) == wanted


def test_odd_slots_go_round_with_the_turn() -> None:
    first = shares(torch.tensor([9, 9, 9]), 10, turn=0.0)
    second = shares(torch.tensor([9, 9, 9]), 10, turn=0.5)
    assert first.tolist() == [4, 3, 3] and second.tolist() == [3, 4, 3]


def test_loss_aware_memory_balances_classes_that_arrive_one_after_the_other() -> None:
    memory = Memory(30, LossAwareReservoir())
    numbers = generator(3)
    for label, batches in enumerate((40, 80, 240)):  # later classes are seen more often, and enter ever more rarely
        for _ in range(batches):
            rows = {"x": torch.rand(8), "y": torch.full((8,), label), "loss": torch.rand(8, generator=numbers)}
            memory.admit(rows, torch.rand(8, 3, generator=numbers, dtype=torch.float64))
    assert torch.bincount(memory.fields["y"]).tolist() == [10, 10, 10]


def test_loss_aware_thins_as_a_reservoir_does() -> None:
    """Which rows are considered at all is decided by the very same numbers."""
    uniform = torch.rand(50, 3, generator=generator(5), dtype=torch.float64)
    memory = Memory(10, LossAwareReservoir())
    memory.admit(batch(0, 50), uniform)
    considered = set((reservoir_slots(0, 10, uniform[:, 0]) < 10).nonzero().flatten().tolist())
    assert set(memory.fields["x"].tolist()) <= considered


def test_draws_are_without_replacement_uniform_and_only_of_filled_slots() -> None:
    memory = Memory(20, Reservoir())
    memory.admit(batch(0, 12), torch.rand(12, 3, dtype=torch.float64, generator=generator(0)))
    numbers, times = generator(1), torch.zeros(20)
    for _ in range(3000):
        slots = memory.draw(6, torch.rand(20, generator=numbers, dtype=torch.float64))
        assert len(set(slots.tolist())) == 6
        times[slots] += 1
    assert times[12:].sum() == 0
    assert (times[:12] / 3000 - 0.5).abs().max() < 0.04


def test_all_rows_are_returned_when_fewer_are_stored_than_asked_for() -> None:
    memory = Memory(20, Reservoir())
    memory.admit(batch(0, 3), torch.rand(3, 3, dtype=torch.float64))
    drawn = memory.sample(memory.draw(8, torch.rand(20, dtype=torch.float64)))
    assert sorted(drawn["x"].tolist()) == [0, 1, 2]


def test_refresh_changes_the_named_rows_only() -> None:
    memory = Memory(4, Reservoir())
    memory.admit(batch(0, 4), torch.rand(4, 3, dtype=torch.float64))
    memory.refresh({"slot": torch.tensor([2, 0]), "loss": torch.tensor([9.0, 8.0])})
    assert memory.fields["loss"].tolist() == [8.0, 1.0, 9.0, 3.0]


def test_a_replaced_content_belongs_to_past_tasks() -> None:
    replaced, ended = Memory(4, PerTask(2)), Memory(4, PerTask(2))
    uniform = torch.rand(6, 3, dtype=torch.float64, generator=generator(0))
    for memory in (replaced, ended):
        memory.admit(batch(0, 6), uniform)
    ended.boundary()
    replaced.replace(replaced.content())
    assert replaced.count == ended.count and len(replaced) == replaced.drawable == 2


def test_state_round_trip_keeps_the_counter() -> None:
    memory, copy = Memory(5, Reservoir()), Memory(5, Reservoir())
    memory.admit(batch(0, 50), torch.rand(50, 3, dtype=torch.float64, generator=generator(0)))
    copy.load(memory.state())
    uniform = torch.rand(9, 3, dtype=torch.float64, generator=generator(1))
    for each in (memory, copy):
        each.admit(batch(50, 9), uniform)
    assert torch.equal(memory.fields["x"], copy.fields["x"]) and memory.count == copy.count and copy.count.seen == 59


def test_a_state_in_any_order_is_the_same_memory() -> None:
    """A checkpoint knows no order of its tensors, and a compiled step adds up in the order of the fields."""
    memory, copy = Memory(5, Reservoir()), Memory(5, Reservoir())
    memory.admit(batch(0, 8), torch.rand(8, 3, dtype=torch.float64, generator=generator(0)))
    copy.load(dict(reversed(memory.state().items())))
    slots = torch.arange(3)
    assert list(memory.fields) == list(copy.fields) and list(memory.sample(slots)) == list(copy.sample(slots))


def test_clear_errors() -> None:
    with pytest.raises(SnclError, match="`memory` is at least 1 sample, not 0"):
        Memory(0, Reservoir())
    with pytest.raises(SnclError, match="needs 'loss'"):
        Memory(3, LossAwareReservoir()).admit({"x": torch.zeros(1), "y": torch.zeros(1).long()}, torch.rand(1, 3))
