"""A-GEM and GEM: the projected gradient against what it must satisfy, and against other ways to compute it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from blobs import CLASSES, FEATURES, batches, kept
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.admission import PerTask, Reservoir
from sncl.methods import agem, gem
from sncl.methods.agem import AGEM, AGEMR
from sncl.methods.gem import GEM, RIDGE, multipliers
from sncl.methods.gradients import gradient_vector
from sncl.methods.sgd import SGD
from sncl.networks.mlp import MLP
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner


def rows(count: int, seed: int, **more: Tensor) -> Fields:
    numbers = generator(seed)
    x = torch.randn(count, FEATURES, generator=numbers)
    return {"x": x, "y": torch.randint(CLASSES, (count,), generator=numbers), **more}


def net() -> Tapped:
    torch.manual_seed(0)
    return Tapped(MLP(FEATURES, CLASSES, width=5))


def plain_gradient(subject: Tapped, batch: Fields) -> Tensor:
    subject.zero_grad()
    F.cross_entropy(subject(batch["x"]).logits, batch["y"]).backward()
    vector = gradient_vector(subject)
    subject.zero_grad()
    return vector


def vectors(seed: int, tasks: int, length: int) -> tuple[Tensor, Tensor]:
    numbers = generator(seed)
    past = torch.randn(tasks, length, generator=numbers)
    return torch.randn(length, generator=numbers), past


# --- A-GEM -------------------------------------------------------------------------------------------------------


def test_agem_by_hand() -> None:
    reference = torch.tensor([0.0, 2.0])
    assert agem.project(torch.tensor([3.0, -1.0]), reference).tolist() == [3.0, 0.0]
    assert agem.project(torch.tensor([3.0, 1.0]), reference).tolist() == [3.0, 1.0]
    assert agem.project(torch.tensor([3.0, -1.0]), torch.zeros(2)).tolist() == [3.0, -1.0]


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_agem_never_points_against_the_reference_and_leaves_what_agrees_alone(seed: int, length: int) -> None:
    gradient, past = vectors(seed, 1, length)
    reference = past[0]
    projected = agem.project(gradient, reference)
    if torch.dot(gradient, reference) >= 0:
        assert torch.equal(projected, gradient)
    else:
        assert torch.dot(projected, reference).abs() <= 1e-5 * reference.norm() * gradient.norm()
        removed = gradient - projected  # the nearest such vector: nothing but a multiple of the reference is taken away
        assert torch.allclose(removed, torch.dot(gradient, reference) / reference.square().sum() * reference, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_an_agem_step_leaves_the_projected_gradient_in_the_parameters(seed: int) -> None:
    subject, now, there = net(), rows(5, seed), rows(7, seed + 100)
    method = AGEMR()
    outcome = method.observe(subject, now, (there,))
    method.backward(subject, outcome.losses)
    found = gradient_vector(subject)
    g, r = plain_gradient(subject, now), plain_gradient(subject, there)
    expected = g if torch.dot(g, r) >= 0 else g - torch.dot(g, r) / torch.dot(r, r) * r
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(outcome.losses["labels"], F.cross_entropy(subject(now["x"]).logits, now["y"]))


def test_with_nothing_to_replay_the_step_is_plain() -> None:
    for method in (AGEM(parts=2), AGEMR(), GEM(margin=0.5, parts=2)):
        subject, now = net(), rows(5, 0)
        method.backward(subject, method.observe(subject, now, ()).losses)
        found = gradient_vector(subject)
        assert torch.allclose(found, plain_gradient(subject, now), atol=1e-7)


def test_the_forms_of_agem_differ_in_what_they_remember() -> None:
    assert isinstance(AGEM(parts=3).admission, PerTask) and AGEM.needs_boundaries
    assert isinstance(AGEMR().admission, Reservoir) and not AGEMR.needs_boundaries
    with pytest.raises(SnclError, match="at least 1, not 0"):
        AGEM(parts=0)


# --- GEM ---------------------------------------------------------------------------------------------------------


def by_trying_every_active_set(
    quadratic: np.ndarray[Any, Any], linear: np.ndarray[Any, Any], margin: float
) -> np.ndarray[Any, Any]:
    """Fix each subset of the unknowns at the bound, solve for the others, keep the best that is allowed."""
    best, lowest = None, np.inf
    for at_bound in product([False, True], repeat=len(linear)):
        bound, free = np.array(at_bound), ~np.array(at_bound)
        v = np.full(len(linear), margin)
        v[free] = np.linalg.solve(
            quadratic[np.ix_(free, free)], -linear[free] - quadratic[np.ix_(free, bound)] @ v[bound]
        )
        value = v @ quadratic @ v / 2 + linear @ v
        if (v >= margin - 1e-9).all() and value < lowest:
            best, lowest = v, value
    assert best is not None
    return best


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 20), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_multipliers_solve_the_quadratic_problem(seed: int, tasks: int, length: int, margin: float) -> None:
    gradient, past = (each.double().numpy() for each in vectors(seed, tasks, length))
    gram, products = past @ past.T, past @ gradient
    v = multipliers(gram, products, margin)
    quadratic = gram + RIDGE * np.eye(tasks)
    np.testing.assert_allclose(v, by_trying_every_active_set(quadratic, products, margin), rtol=1e-6, atol=1e-7)
    slope = quadratic @ v + products  # KKT: feasible, slope not negative, and zero where the bound is not met
    assert (v >= margin).all() and (slope >= -1e-8).all() and np.abs(slope * (v - margin)).max() < 1e-8


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_multipliers_equal_a_general_solver_with_many_tasks(margin: float) -> None:
    gradient, past = (each.double().numpy() for each in vectors(3, 19, 60))
    gram, products = past @ past.T, past @ gradient
    quadratic = gram + RIDGE * np.eye(19)
    general = minimize(
        lambda v: v @ quadratic @ v / 2 + products @ v,
        np.full(19, margin + 1.0),
        jac=lambda v: quadratic @ v + products,
        bounds=[(margin, None)] * 19,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    np.testing.assert_allclose(multipliers(gram, products, margin), general.x, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 25), st.sampled_from([0.0, 0.5]))
def test_gem_points_against_no_past_gradient(seed: int, tasks: int, margin: float) -> None:
    gradient, past = vectors(seed, tasks, 30)
    projected = gem.project_to_cone(gradient, past, margin)
    if (past @ gradient >= 0).all():
        assert torch.equal(projected, gradient)
        return
    added = torch.linalg.lstsq(past.double().T, (projected - gradient).double()).solution  # v, as tasks < 30
    assert (added >= margin - 1e-4).all()
    assert (past @ projected >= -RIDGE * added.max() - 1e-3).all()


def test_more_tasks_than_parameters_and_equal_tasks_are_no_problem() -> None:
    gradient, past = vectors(1, 40, 6)
    assert torch.isfinite(gem.project_to_cone(gradient, past, 0.5)).all()
    same = past[:1].expand(7, 6) * (-1 if past[0] @ gradient > 0 else 1)
    projected = gem.project_to_cone(gradient, same, 0.0)
    assert (same @ projected).abs().max() < 1e-3


@given(st.integers(0, 10_000))
def test_with_one_past_task_and_no_margin_gem_is_agem_up_to_the_ridge(seed: int) -> None:
    gradient, past = vectors(seed, 1, 40)
    ours, theirs = gem.project_to_cone(gradient, past, 0.0), agem.project(gradient, past[0])
    assert torch.allclose(ours, theirs, atol=3 * RIDGE / float(past.square().sum()) * float(gradient.norm()) + 1e-5)


def test_a_margin_adds_past_gradients_that_are_not_violated() -> None:
    past = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    gradient = torch.tensor([-1.0, 1.0, 5.0])
    assert torch.allclose(gem.project_to_cone(gradient, past, 0.0), torch.tensor([0.0, 1.0, 5.0]), atol=2 * RIDGE)
    assert torch.allclose(gem.project_to_cone(gradient, past, 0.5), torch.tensor([0.0, 1.5, 5.0]), atol=2 * RIDGE)


def test_a_gradient_that_is_no_number_is_handed_on_to_be_reported() -> None:
    gradient = torch.tensor([-1.0, float("nan")])
    assert gem.project_to_cone(gradient, torch.eye(2), 0.5)[1].isnan()


def test_a_gem_step_takes_every_past_task_by_itself() -> None:
    subject, now = net(), rows(6, 0)
    task = torch.tensor([3, 0, 0, 3, 1, 0, 3, 3, 0])  # task 2 left nothing behind
    there = rows(9, 1, task=task)
    method = GEM(margin=0.5, parts=4)
    outcome = method.observe(subject, now, (there,))
    assert list(outcome.losses) == ["labels", "past/0", "past/1", "past/3"]
    each = {k: {name: value[task == k] for name, value in there.items()} for k in (0, 1, 3)}
    for number, batch in each.items():
        expected = F.cross_entropy(subject(batch["x"]).logits, batch["y"])
        assert torch.allclose(outcome.losses[f"past/{number}"], expected)
    method.backward(subject, outcome.losses)
    found = gradient_vector(subject)
    past = torch.stack([plain_gradient(subject, batch) for batch in each.values()])
    gradient = plain_gradient(subject, now)
    assert (past @ gradient).min() < 0
    v = by_trying_every_active_set(
        (past.double() @ past.double().T).numpy() + RIDGE * np.eye(3), (past @ gradient).double().numpy(), 0.5
    )
    assert torch.allclose(found, gradient + torch.from_numpy(v).float() @ past, atol=1e-5)


def test_gem_remembers_the_task_of_every_row_and_replays_all_of_them() -> None:
    torch.manual_seed(0)
    method = GEM(margin=0.5, parts=3)
    learner = Learner(MLP(FEATURES, CLASSES, width=5), method, memory=12, replay=1, lr=0.05, device="cpu")
    for _ in range(3):
        for batch in batches(2):
            learner.learn(*batch)
        learner.boundary()
    assert learner.memory is not None
    assert learner.memory.content()["task"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert "method/ended" in learner.state() and int(method.ended) == 3
    assert method.replayed_rows(0, 1) >= 12
    with pytest.raises(SnclError, match="`margin` is 0 or a positive number, not -1"):
        GEM(margin=-1, parts=2)


def test_batchnorm_sees_each_past_task_by_itself() -> None:
    subject = Tapped(nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES)))
    there = rows(8, 1, task=torch.tensor([0, 1] * 4))
    losses = GEM(margin=0.5, parts=2).observe(subject, rows(4, 0), (there,)).losses
    batch = {name: value[there["task"] == 1] for name, value in there.items()}
    assert torch.allclose(losses["past/1"], F.cross_entropy(subject(batch["x"]).logits, batch["y"]))


# --- what it is for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: AGEM(parts=2), AGEMR, lambda: GEM(margin=0.5, parts=2)])
def test_the_first_task_is_kept_where_plain_training_forgets_it(make: Any) -> None:
    ours, plain = (sum(kept(each(), seed) for seed in range(3)) / 3 for each in (make, SGD))
    assert ours > plain + 0.1  # a projection only stops the loss from rising, it does not bring it down
