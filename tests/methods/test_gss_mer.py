"""GSS: scores by explicit loops, admission against a slow reference. MER: its steps written out."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from blobs import CLASSES, FEATURES, batches, kept
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.admission import Count
from sncl.memory.diverse import GradientDiverse
from sncl.memory.memory import Memory
from sncl.methods.gradients import gradient_vector
from sncl.methods.gss import ALONE, GSS, scores
from sncl.methods.mer import MER
from sncl.methods.sgd import SGD
from sncl.networks.mlp import MLP
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner


def rows(count: int, seed: int) -> Fields:
    numbers = generator(seed)
    x = torch.randn(count, FEATURES, generator=numbers)
    return {"x": x, "y": torch.randint(CLASSES, (count,), generator=numbers)}


def net() -> MLP:
    torch.manual_seed(0)
    return MLP(FEATURES, CLASSES, width=5)


# --- GSS: scores -------------------------------------------------------------------------------------------------


def gradient(subject: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    tapped = Tapped(subject)
    tapped.zero_grad()
    F.cross_entropy(subject(x), y).backward()
    vector = gradient_vector(tapped)
    tapped.zero_grad()
    return vector


def test_scores_equal_explicit_loops() -> None:
    body, now, drawn = net(), rows(6, 0), rows(4, 1)
    score, whole = scores(Tapped(body), now, drawn)
    theirs = [gradient(body, x[None], y[None]) for x, y in zip(drawn["x"], drawn["y"], strict=True)]

    def expected(ours: Tensor) -> float:
        return 1 + max(float(F.cosine_similarity(ours, each, dim=0)) for each in theirs)

    for number in range(6):
        ours = gradient(body, now["x"][number : number + 1], now["y"][number : number + 1])
        assert float(score[number]) == pytest.approx(expected(ours), abs=1e-5)
    assert float(whole) == pytest.approx(expected(gradient(body, now["x"], now["y"])), abs=1e-5)


def test_scores_are_taken_in_evaluation_mode_and_leave_the_network_as_it_was() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, CLASSES))
    before = deepcopy(body.state_dict())
    first, second = (scores(Tapped(body), rows(6, 0), rows(4, 1)) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert body.training and all(torch.equal(before[name], value) for name, value in body.state_dict().items())
    assert all(value.grad is None for value in body.parameters())


def test_a_row_met_again_scores_two_and_a_row_without_a_gradient_one() -> None:
    body, now = net(), rows(3, 0)
    assert torch.allclose(scores(Tapped(body), now, now)[0], torch.full((3,), 2.0))
    with torch.no_grad():
        body.head.weight.zero_()
        body.head.bias.copy_(torch.tensor([500.0, 0.0, 0.0, 0.0]))  # class 0 is certain, so its loss is flat
    certain = {"x": now["x"], "y": torch.zeros(3, dtype=torch.int64)}
    score, whole = scores(Tapped(body), certain, rows(4, 1))
    assert score.tolist() == [1.0, 1.0, 1.0] and float(whole) == 1.0


def test_opposite_gradients_still_score_above_zero() -> None:
    body = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        body.weight.zero_()
    x = torch.tensor([[1.0, 0.0]])
    score, _ = scores(Tapped(body), {"x": x, "y": torch.tensor([0])}, {"x": x, "y": torch.tensor([1])})
    assert 0 < float(score) < 1e-5


def test_gss_trains_as_er_and_scores_against_its_own_draw() -> None:
    body, now, there, drawn = net(), rows(6, 0), rows(5, 1), rows(4, 2)
    method = GSS(compared=4)
    outcome = method.observe(Tapped(body), now, (there, drawn))
    logits, y = body(torch.cat([now["x"], there["x"]])), torch.cat([now["y"], there["y"]])
    assert torch.allclose(outcome.losses["labels"], F.cross_entropy(logits, y))  # one mean over 11 rows
    score, whole = scores(Tapped(body), now, drawn)
    assert torch.equal(outcome.remember["score"], score)
    assert torch.equal(outcome.remember["batch_score"], whole.expand(6))
    assert [method.replayed_rows(draw, 32) for draw in (0, 1)] == [32, 4]
    first = method.observe(Tapped(body), now, ())
    assert first.remember["score"].tolist() == pytest.approx([ALONE] * 6)
    with pytest.raises(SnclError, match="at least 1, not 0"):
        GSS(compared=0)


# --- GSS: admission ----------------------------------------------------------------------------------------------


def slow_slots(stored: list[float], incoming: list[float], batch: float, seen: int, uniform: Tensor) -> list[int]:
    """One row after the other, with the scores the batch found."""
    capacity = len(stored)
    found = [*stored[:seen], *incoming[: max(0, capacity - seen)]][:capacity]
    slots = []
    for number, own in enumerate(incoming):
        if seen + number < capacity:
            slots.append(seen + number)
            continue
        slot, left = 0, float(uniform[number, 1]) * sum(found)
        while slot < capacity - 1 and left >= found[slot]:
            left -= found[slot]
            slot += 1
        replaces = float(uniform[number, 2]) < found[slot] / (found[slot] + own)
        slots.append(slot if replaces and batch < 1 else capacity)
    return slots


@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 20), st.floats(0.01, 2), st.integers(0, 10_000))
def test_admission_equals_a_slow_reference(capacity: int, count: int, seen: int, batch: float, seed: int) -> None:
    numbers = generator(seed)
    stored = 0.01 + 1.99 * torch.rand(capacity, generator=numbers, dtype=torch.float64)
    own = 0.01 + 1.99 * torch.rand(count, generator=numbers, dtype=torch.float64)
    uniform = torch.rand(count, 3, generator=numbers, dtype=torch.float64)
    incoming = {"score": own, "batch_score": torch.full((count,), batch, dtype=torch.float64)}
    slots = GradientDiverse().slots({"score": stored}, incoming, Count(capacity, seen=seen), uniform)
    assert slots.tolist() == slow_slots(stored.tolist(), own.tolist(), batch, seen, uniform)


def test_slots_are_met_in_proportion_to_their_scores_and_taken_by_the_odds() -> None:
    stored = torch.tensor([0.2, 0.6, 1.2])
    uniform = torch.rand(60_000, 3, generator=generator(0), dtype=torch.float64)
    incoming = {"score": torch.full((60_000,), 0.4), "batch_score": torch.full((60_000,), 0.9)}
    slots = GradientDiverse().slots({"score": stored}, incoming, Count(3, seen=3), uniform)
    part = torch.bincount(slots, minlength=4)[:3] / 60_000
    assert torch.allclose(part, stored / stored.sum() * stored / (stored + 0.4), atol=0.01)


def test_a_batch_that_agrees_with_the_memory_is_not_considered() -> None:
    memory, numbers = Memory(5, GradientDiverse()), generator(0)
    for start, batch_score in ((0, 1.7), (5, 1.0), (10, 0.99)):
        x = torch.arange(start, start + 5)
        offered = {"x": x, "score": torch.full((5,), 0.01), "batch_score": torch.full((5,), batch_score)}
        memory.admit(offered, torch.rand(5, 3, generator=numbers, dtype=torch.float64))
        assert (memory.fields["x"] < 5).all() == (start < 10)
    with pytest.raises(SnclError, match="needs 'score'"):
        Memory(3, GradientDiverse()).admit({"x": torch.zeros(1)}, torch.rand(1, 3))


# --- MER ---------------------------------------------------------------------------------------------------------


def mer(beta: float, gamma: float, inner: int) -> Learner:
    return Learner(net(), MER(beta, gamma, inner), memory=10, replay=4, lr=0.1, device="cpu")


@pytest.mark.parametrize(("beta", "gamma", "inner"), [(1.0, 1.0, 3), (0.5, 1.0, 2), (1.0, 0.3, 3), (0.5, 0.3, 1)])
def test_mer_equals_its_steps_written_out(beta: float, gamma: float, inner: int) -> None:
    learner, body = mer(beta, gamma, inner), net()
    stream = batches(12, rows=1)
    for x, y in stream:
        learner.prepare(x)
        across = [value.detach().clone() for value in body.parameters()]
        twin = deepcopy(learner)  # draws what the learner will draw
        for _ in range(inner):
            within = [value.detach().clone() for value in body.parameters()]
            past = [twin.memory.sample(draw.slots) for draw in twin._replay.draws()]  # type: ignore[union-attr]
            inputs = torch.cat([x, *(rows["x"] for rows in past)])
            labels = torch.cat([y, *(rows["y"] for rows in past)])
            body.zero_grad()
            F.cross_entropy(body(inputs), labels).backward()
            with torch.no_grad():
                for value, start in zip(body.parameters(), within, strict=True):
                    assert value.grad is not None
                    value.sub_(0.1 * value.grad)
                    value.copy_(start + beta * (value - start))
        with torch.no_grad():
            for value, start in zip(body.parameters(), across, strict=True):
                value.copy_(start + gamma * (value - start))
        learner.learn(x, y)
        for ours, theirs in zip(learner.body.parameters(), body.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def test_without_stepping_back_nothing_is_kept_for_it() -> None:
    whole, part = mer(1.0, 1.0, 2), mer(1.0, 0.5, 2)
    for learner in (whole, part):
        learner.learn(*batches(1, rows=1)[0])
    assert not any("start" in name for name, _ in whole.method.named_buffers())
    assert any("start" in name for name, _ in part.method.named_buffers())
    assert whole.state().keys() == part.state().keys()  # theta_0 means nothing between batches


def test_stepping_back_leaves_a_learner_that_can_be_saved_and_continued(tmp_path: object) -> None:
    rows = batches(10, rows=1)
    unbroken, first, second = (mer(0.5, 0.3, 3) for _ in range(3))
    for x, y in rows:
        unbroken.learn(x, y)
    for x, y in rows[:4]:
        first.learn(x, y)
    first.save(f"{tmp_path}/learner")
    second.load(f"{tmp_path}/learner")
    for x, y in rows[4:]:
        second.learn(x, y)
    ours, theirs = unbroken.state(), second.state()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_bad_settings_are_refused_in_words() -> None:
    with pytest.raises(SnclError, match="`gamma` is a positive number, not 0"):
        MER(1.0, 0.0, 1)
    with pytest.raises(SnclError, match="at least 1, not 0"):
        MER(1.0, 1.0, 0)


# --- what it is for ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["gss", "mer", "mer stepping back"])
def test_the_first_task_is_kept_where_plain_training_forgets_it(settings: str) -> None:
    made = {"gss": GSS(10), "mer": MER(1.0, 1.0, 3), "mer stepping back": MER(1.0, 0.5, 3)}
    ours = sum(kept(deepcopy(made[settings]), seed) for seed in range(3)) / 3
    plain = sum(kept(SGD(), seed) for seed in range(3)) / 3
    assert ours > plain + 0.2
