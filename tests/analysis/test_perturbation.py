"""Noise on weights: without any the run's own accuracy, with some what a plain computation gives, and no trace left."""

import json

import pytest
import torch
from torch.nn import functional as F

from sncl.analysis.perturbation import direction, moved, perturbation, weights
from sncl.analysis.samples import TrainingSamples
from sncl.errors import SnclError
from sncl.runs.loading import Trained


@pytest.mark.parametrize("name", ["gated", "random_gates"])
def test_without_noise_it_is_the_runs_accuracy_and_the_weights_come_back_bit_for_bit(
    name: str, request: pytest.FixtureRequest
) -> None:
    subject: Trained = request.getfixturevalue(name)
    before = {name: value.clone() for name, value in subject.learner.net.body.state_dict().items()}
    found = perturbation(subject, sizes={"absolute": (0.0, 0.2), "relative": (0.0, 0.7)}, draws=2, rows=0)
    after = subject.learner.net.body.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert set(found["measures"]) == {"absolute", "relative", "relative_gates"}
    for points in found["measures"].values():
        for readout, stored in subject.result.accuracy.items():
            assert points[0][f"accuracy/{readout}"] == stored
            assert points[1][f"accuracy/{readout}"] != stored
        assert points[1]["train_loss"] > points[0]["train_loss"]
    for points in found["draws"].values():
        (still,), (first, second) = (point["values"] for point in points)
        assert still["train_loss"] < min(first["train_loss"], second["train_loss"])
        assert first["train_loss"] != second["train_loss"]


def test_the_losses_are_those_of_the_moved_network(plain: Trained) -> None:
    found = perturbation(plain, sizes={"absolute": (0.1,), "relative": (0.3,)}, draws=1, rows=50, seed=4)
    assert set(found["measures"]) == {"absolute", "relative"}
    net = plain.learner.net.body.eval()
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    rows = list(TrainingSamples(plain.stream, 50, 4))
    x, y = (torch.cat(parts) for parts in zip(*rows, strict=True))
    for kind, size in (("absolute", 0.1), ("relative", 0.3)):
        with torch.no_grad():
            for name, value in net.named_parameters():
                value.copy_(before[name] + size * direction(name, before[name], kind, 4, plain.experiment.seed, 0))
            expected = F.cross_entropy(net(plain.learner.transform.eval(x)), y)
        assert found["measures"][kind][0]["train_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_relative_noise_has_the_norm_of_each_filter() -> None:
    matrix = torch.randn(4, 3, 2, 2) * torch.tensor([0.0, 1.0, 5.0, 0.1])[:, None, None, None]
    made = direction("a", matrix, "relative", 0)
    assert torch.allclose(made.flatten(1).norm(dim=1), matrix.flatten(1).norm(dim=1))
    assert not made[0].any()
    vector = torch.randn(7)
    made = direction("a", vector, "relative", 0)
    assert made.norm() == pytest.approx(float(vector.norm()), rel=1e-5)
    assert not torch.allclose(made.abs(), vector.abs())
    normal = direction("a", torch.zeros(100, 100), "absolute", 0)
    assert abs(float(normal.mean())) < 0.03 and abs(float(normal.std()) - 1) < 0.03


@pytest.mark.parametrize("name", ["gated", "random_gates"])
def test_what_the_noise_goes_on(name: str, plain: Trained, request: pytest.FixtureRequest) -> None:
    body = request.getfixturevalue(name).learner.net.body
    everything = {name for name, _ in body.named_parameters()}
    absolute, relative, gates = (set(weights(body, kind)) for kind in ("absolute", "relative", "relative_gates"))
    lambdas = {name for name in everything if name.endswith("log_variance")}
    assert len(lambdas) == (2 if name == "random_gates" else 0)
    assert absolute == gates == everything - lambdas
    assert {name.rpartition(".")[2] for name in absolute - relative} == {"mu"}
    for kind in ("absolute", "relative"):
        assert relative == set(weights(plain.learner.net.body, kind))


def test_weights_come_back_after_an_error_too(plain: Trained) -> None:
    parameters = weights(plain.learner.net.body, "absolute")
    before = {name: value.detach().clone() for name, value in parameters.items()}
    noise = {name: torch.ones_like(value) for name, value in parameters.items()}

    def fail() -> None:
        assert torch.equal(parameters["head.bias"], before["head.bias"] + 0.5)
        raise KeyError

    with pytest.raises(KeyError), moved(parameters, noise, 0.5):
        fail()
    assert all(torch.equal(parameters[name], before[name]) for name in before)


def test_the_seed_decides(plain: Trained) -> None:
    def found(seed: int) -> str:
        sizes = {"absolute": (0.1,), "relative": (0.3,)}
        return json.dumps(perturbation(plain, sizes=sizes, draws=1, rows=30, seed=seed))

    assert found(0) == found(0)
    assert found(0) != found(1)


def test_noise_beyond_numbers_is_refused(plain: Trained) -> None:
    with pytest.raises(SnclError, match="smaller sizes"):
        perturbation(plain, sizes={"absolute": (1e30,), "relative": ()}, draws=1, rows=30)
