"""Each method's losses against its equation, computed here by other means; and what switching a part off means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly
from torch import Tensor
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.admission import Admission, LossAwareReservoir, Reservoir
from sncl.methods.der import DER
from sncl.methods.er import ER
from sncl.methods.sgd import SGD
from sncl.methods.sncl import SNCL
from sncl.methods.table import Settings
from sncl.methods.table import make as make_method
from sncl.methods.terms import feature_distance, pooled
from sncl.networks.gating.attach import gates
from sncl.networks.gating.policies import KL, Gating, Grow
from sncl.networks.mlp import MLP
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator
from sncl.training.learner import Learner


def rows(count: int, seed: int) -> Fields:
    numbers = generator(seed)
    hidden = {f"features/layer{n}.1": torch.rand(count, 5, generator=numbers) for n in (1, 2)}
    return {
        "x": torch.randn(count, 6, generator=numbers),
        "y": torch.randint(3, (count,), generator=numbers),
        "logits": torch.randn(count, 3, generator=numbers),
        "slot": torch.arange(count),
        **hidden,
    }


def net(*layers: str) -> Tapped:
    torch.manual_seed(0)
    return Tapped(MLP(6, 3, width=5), layers)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return -torch.stack([row.softmax(0)[label].log() for row, label in zip(logits, y, strict=True)]).mean()


def test_sgd_and_er_equal_their_equations() -> None:
    here, there = rows(4, 0), rows(7, 1)
    subject = net()
    logits = subject(here["x"]).logits
    assert torch.allclose(SGD().observe(subject, here, ()).losses["labels"], cross_entropy(logits, here["y"]))
    both = torch.cat([logits, subject(there["x"]).logits])
    expected = cross_entropy(both, torch.cat([here["y"], there["y"]]))  # one mean over 11 rows
    assert torch.allclose(ER().observe(subject, here, (there,)).losses["labels"], expected)
    assert torch.allclose(ER().observe(subject, here, ()).losses["labels"], cross_entropy(logits, here["y"]))


def test_derpp_equals_its_equation_and_remembers_the_logits_of_the_training_pass() -> None:
    here, first, second = rows(4, 0), rows(7, 1), rows(5, 2)
    subject = net()
    outcome = DER(logits=0.3, labels=0.7).observe(subject, here, (first, second))
    z, z1, z2 = (subject(each["x"]).logits for each in (here, first, second))
    assert torch.allclose(outcome.losses["labels"], cross_entropy(z, here["y"]))
    assert torch.allclose(outcome.losses["past_logits"], 0.3 * ((z1 - first["logits"]) ** 2).sum() / (7 * 3))
    assert torch.allclose(outcome.losses["past_labels"], 0.7 * cross_entropy(z2, second["y"]))
    assert torch.allclose(outcome.remember["logits"], z)
    assert DER(logits=0.3).draws == 1 and DER(logits=0.3, labels=0.7).draws == 2


def test_sncl_equals_its_equation() -> None:
    here, first, second = rows(4, 0), rows(7, 1), rows(5, 2)
    gating = KL(0.01, anneal=3.0)
    method = SNCL(alpha=0.7, beta=0.3, gamma=2.0, gating=gating)
    subject = method.prepare(MLP(6, 3, width=5), here["x"], generator(0))
    assert [name for name, _ in gates(subject.body)] == ["layer1.1", "layer2.1"]
    subject.eval()  # gates at their mean, so that the equation can be written down
    gating.seen += 500
    outcome = method.observe(subject, here, (first, second))
    z, z1, z2 = (subject(each["x"]) for each in (here, first, second))
    h = [((z1.features[f"layer{n}.1"] - first[f"features/layer{n}.1"]) ** 2).mean() for n in (1, 2)]
    each = F.cross_entropy(z.logits, here["y"], reduction="none")
    assert torch.allclose(outcome.losses["labels"], each.mean())
    assert torch.allclose(outcome.losses["past_logits"], 0.3 * ((z1.logits - first["logits"]) ** 2).mean())
    assert torch.allclose(outcome.losses["past_features"], 2.0 * (h[0] + h[1]) / 2)
    assert torch.allclose(outcome.losses["past_labels"], 0.7 * cross_entropy(z2.logits, second["y"]))
    assert torch.allclose(outcome.losses["sparsity"], 0.01 / (1 + 3.0 * 0.5) * gating.divergence())
    assert torch.allclose(outcome.remember["loss"], each)
    assert torch.allclose(outcome.remember["features/layer1.1"], z.features["layer1.1"])
    assert torch.equal(outcome.refresh["slot"], second["slot"])


def blobs(count: int) -> list[tuple[Tensor, Tensor]]:
    numbers = generator(7)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(3, (8,), generator=numbers)) for _ in range(count)]


def trained(method: SNCL | DER, epochs: int = 1) -> Learner:
    torch.manual_seed(0)
    learner = Learner(MLP(6, 3, width=5), method, memory=16, replay=8, lr=0.1, device="cpu")
    for x, y in blobs(25) * epochs:
        learner.learn(x, y)
    return learner


def test_features_are_stored_in_half_precision() -> None:
    memory = trained(SNCL(alpha=0.7, beta=0.3, gamma=1.0, gating=KL(0.01))).memory
    assert memory is not None
    assert {name: value.dtype for name, value in memory.fields.items() if name.startswith("features/")} == {
        "features/layer1.1": torch.float16,
        "features/layer2.1": torch.float16,
    }
    assert memory.fields["logits"].dtype == memory.fields["loss"].dtype == torch.float32


def weights(learner: Learner) -> Tensor:
    return torch.cat([value.flatten() for name, value in learner.body.state_dict().items() if "gate" not in name])


def test_with_every_part_off_sncl_is_derpp_and_der_bit_for_bit() -> None:
    plus = trained(SNCL(alpha=0.7, beta=0.3, gamma=0.0, admission=Reservoir()))
    assert torch.equal(weights(plus), weights(trained(DER(logits=0.3, labels=0.7))))
    plain = trained(SNCL(alpha=0.0, beta=0.3, gamma=0.0, admission=Reservoir()))
    assert torch.equal(weights(plain), weights(trained(DER(logits=0.3))))


def part(gamma: float = 0.0, gating: Gating | None = None, admission: Admission | None = None) -> SNCL:
    """SNCL with nothing but this part of it."""
    return SNCL(0.7, 0.3, gamma, gating, admission or Reservoir())


@pytest.mark.parametrize(
    "make",
    [
        lambda: part(gamma=1.0),
        lambda: part(gating=KL(0.1)),
        lambda: part(gating=Grow(0.4)),
        lambda: part(admission=LossAwareReservoir()),
    ],
    ids=["FER", "VBS by KL", "neurons in reserve", "LRS"],
)
def test_each_part_on_changes_the_result(make: Callable[[], SNCL]) -> None:
    assert not torch.equal(weights(trained(make())), weights(trained(DER(logits=0.3, labels=0.7))))


def test_a_part_that_is_off_moves_no_random_number_of_another() -> None:
    """Paired comparisons: what is replayed and admitted is the same with and without gates and features."""
    alone, both = trained(part()), trained(part(gamma=1.0, gating=KL(0.01)))
    assert alone.memory is not None and both.memory is not None
    assert torch.equal(alone.memory.fields["x"], both.memory.fields["x"])
    ours, theirs = alone.random.state(), both.random.state()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if name != "gates")


def closed(learner: Learner) -> int:
    return sum(int((~gate.is_open()).sum()) for _, gate in gates(learner.net))


def test_a_strong_pull_closes_gates_and_an_annealed_one_does_not() -> None:
    assert closed(trained(part(gating=KL(2.0)), epochs=4)) > 0
    assert closed(trained(part(gating=KL(2.0, anneal=1e6)), epochs=4)) == 0


def test_with_no_neuron_in_reserve_the_first_step_is_that_without_gates_bit_for_bit() -> None:
    """Gates begin with means of 1. What is drawn stays the same for good, so that runs are paired."""
    first = [Learner(MLP(6, 3, width=5), part(1.0, gating), device="cpu") for gating in (Grow(0.0, start=1.0), None)]
    for learner in first:
        learner.body.load_state_dict(net().body.state_dict())
    with_gates, without = (learner.learn(*blobs(1)[0]) for learner in first)
    assert with_gates == without
    ours, theirs = (trained(part(1.0, gating)) for gating in (Grow(0.0, start=1.0), None))
    assert [name for name, _ in gates(ours.body)] == ["layer1.1", "layer2.1"] and closed(ours) == 0
    assert all(torch.equal(ours.random.state()[name], value) for name, value in theirs.random.state().items())
    assert ours.memory is not None and theirs.memory is not None
    assert torch.equal(ours.memory.fields["x"], theirs.memory.fields["x"])


def test_neurons_in_reserve_are_opened_by_data_until_the_sparsity_that_was_asked_for() -> None:
    def method() -> SNCL:
        return part(gamma=1.0, gating=Grow(0.3, start=0.4, fill=0.1))

    before = method().prepare(MLP(6, 3, width=5), torch.rand(2, 6), generator(0))
    after = trained(method())  # on 200 samples
    assert sum(int(gate.is_open().sum()) for _, gate in gates(before)) < 10 - closed(after) == 6
    assert all(gate.is_open().any() for _, gate in gates(before))
    assert "sparsity" not in after.learn(*blobs(1)[0])  # no loss pulls at gates


POLICIES: dict[str, Callable[[], Gating]] = {
    "kl": lambda: KL(0.01, anneal=10.0),
    "grow": lambda: Grow(0.2, start=0.2, fill=0.15),
    "settle": lambda: Grow(0.4, start=0.2, fill=0.05, settle=0.15),
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_resumes_exactly(name: str, tmp_path: Path) -> None:
    rows = blobs(25)

    def make(seed: int) -> Learner:
        torch.manual_seed(0)
        method = SNCL(0.7, 0.3, 1.0, POLICIES[name]())
        return Learner(MLP(6, 3, width=5), method, memory=16, replay=8, lr=0.1, device="cpu", seed=seed)

    def go(learner: Learner, start: int, stop: int) -> None:
        for x, y in rows[start:stop]:
            learner.learn(x, y)

    assert goes_on_exactly(make, go, 11, 25, tmp_path)


def test_named_features() -> None:
    x = torch.rand(3, 6)
    named = SNCL(alpha=1.0, beta=1.0, gamma=1.0, features=("layer2",))
    subject = named.prepare(MLP(6, 3, width=5), x, generator(0))
    remembered = named.observe(subject, {"x": x, "y": torch.zeros(3).long()}, ()).remember
    assert {name for name in remembered if "/" in name} == {"features/layer2"}


def test_the_distance_of_features_does_not_depend_on_the_order_they_are_remembered_in() -> None:
    draw = generator(0, "features")
    ours, theirs = ({f"layer{n}": torch.randn(7, 5, generator=draw) for n in range(9)} for _ in range(2))
    expected = feature_distance(ours, theirs)
    for first in range(1, 9):
        names = [*list(theirs)[first:], *list(theirs)[:first]]
        assert torch.equal(feature_distance(ours, {name: theirs[name] for name in names}), expected)


def test_maps_and_sequences_are_pooled_to_their_channels() -> None:
    axes = {"images": 1, "channels last": -1, "sequence": -1, "signal": 1, "flat": -1}
    shapes = {"images": (2, 4, 3, 3), "channels last": (2, 3, 3, 4), "sequence": (2, 7, 4), "signal": (2, 4, 7)}
    features = {name: torch.rand(shape) for name, shape in shapes.items()} | {"flat": torch.rand(2, 4)}
    over = {"images": (2, 3), "channels last": (1, 2), "sequence": 1, "signal": 2}
    found = pooled(features, axes)
    for name, positions in over.items():
        torch.testing.assert_close(found[name], features[name].mean(positions))
    assert found["flat"] is features["flat"]


def test_settings_in_words_become_objects() -> None:
    usual = make_method("sncl")
    assert isinstance(usual, SNCL) and isinstance(usual.gating, Grow) and usual.gating.sparsity == 0.3
    assert isinstance(usual.admission, LossAwareReservoir)
    other = make_method("sncl", {"gates": "off", "admission": "reservoir", "features": "layer1, layer2"})
    assert isinstance(other, SNCL) and other.gating is None and isinstance(other.admission, Reservoir)
    assert other.features == ("layer1", "layer2")
    paper = make_method("sncl", {"gates": "kl", "eta": 0.02, "layers": "layer1"})
    assert isinstance(paper, SNCL) and isinstance(paper.gating, KL)
    assert (paper.gating.eta, paper.gating.anneal, paper.gating.layers) == (0.02, 0.0, ("layer1",))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"admission": "best"}, "`admission` is one of loss-aware, reservoir, not 'best'"),
        ({"gates": "ajar"}, "`gates` is one of off, grow, kl, not 'ajar'"),
        ({"gates": "natural"}, "`gates=natural` is gone; `gates=grow` is there instead, with `sparsity`, the fraction"),
        ({"gates": "target"}, "`gates=target` is gone; `gates=grow` is there instead, with `sparsity`, the fraction"),
        ({"gates": "off", "eta": 0.1}, "sncl has no setting 'eta'; it belongs to gates=kl"),
        ({"eta": 0.1}, "sncl has no setting 'eta'; it belongs to gates=kl"),
        ({"gates": "kl", "sparsity": 0.1}, "sncl has no setting 'sparsity'; it belongs to gates=grow"),
        ({"nope": 0.1}, "sncl has no setting 'nope'; it takes alpha, beta, gamma, gates"),
    ],
)
def test_settings_that_cannot_be_written_together_are_refused(settings: Settings, message: str) -> None:
    with pytest.raises(SnclError) as error:
        make_method("sncl", settings)
    assert message in str(error.value)
