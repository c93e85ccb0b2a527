"""Each method's losses against its equation, computed here by other means; and what switching a part off means."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from resuming import goes_on_exactly
from torch import Tensor
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.admission import LossAwareReservoir, Reservoir
from sncl.methods.der import DER
from sncl.methods.er import ER
from sncl.methods.sgd import SGD
from sncl.methods.sncl import SNCL
from sncl.networks.gating.gate import divergence, gates
from sncl.networks.mlp import MLP
from sncl.networks.pruning.prune import prune
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
    method = SNCL(alpha=0.7, beta=0.3, gamma=2.0, eta=0.01, release=3.0, noise="channel")
    subject = method.prepare(MLP(6, 3, width=5), here["x"], generator(0))
    assert [name for name, _ in gates(subject.body)] == ["layer1.1", "layer2.1"]
    subject.eval()  # gates at their mean, so that the equation can be written down
    method.seen += 500
    outcome = method.observe(subject, here, (first, second))
    z, z1, z2 = (subject(each["x"]) for each in (here, first, second))
    h = [((z1.features[f"layer{n}.1"] - first[f"features/layer{n}.1"]) ** 2).mean() for n in (1, 2)]
    each = F.cross_entropy(z.logits, here["y"], reduction="none")
    assert torch.allclose(outcome.losses["labels"], each.mean())
    assert torch.allclose(outcome.losses["past_logits"], 0.3 * ((z1.logits - first["logits"]) ** 2).mean())
    assert torch.allclose(outcome.losses["past_features"], 2.0 * (h[0] + h[1]) / 2)
    assert torch.allclose(outcome.losses["past_labels"], 0.7 * cross_entropy(z2.logits, second["y"]))
    assert torch.allclose(outcome.losses["sparsity"], 0.01 / (1 + 3.0 * 0.5) * divergence(method.gates))
    assert torch.allclose(outcome.remember["loss"], each)
    assert torch.allclose(outcome.remember["features/layer1.1"], z.features["layer1.1"])
    assert torch.equal(outcome.refresh["slot"], second["slot"])


def blobs(count: int) -> list[tuple[Tensor, Tensor]]:
    numbers = generator(7)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(3, (8,), generator=numbers)) for _ in range(count)]


def trained(method: SNCL | DER) -> Learner:
    torch.manual_seed(0)
    learner = Learner(MLP(6, 3, width=5), method, memory=16, replay=8, lr=0.1, device="cpu")
    for x, y in blobs(25):
        learner.learn(x, y)
    return learner


def test_features_are_stored_in_half_precision_unless_told_otherwise() -> None:
    for stored, dtype in (("float16", torch.float16), ("float32", torch.float32)):
        fields = trained(SNCL(alpha=0.7, beta=0.3, gamma=1.0, eta=0.01, stored=stored)).memory.fields  # type: ignore[union-attr]
        assert {name: value.dtype for name, value in fields.items() if name.startswith("features/")} == {
            "features/layer1.1": dtype,
            "features/layer2.1": dtype,
        }
        assert fields["logits"].dtype == fields["loss"].dtype == torch.float32


def weights(learner: Learner) -> Tensor:
    return torch.cat([value.flatten() for name, value in learner.body.state_dict().items() if "gate" not in name])


def test_with_every_part_off_sncl_is_derpp_and_der_bit_for_bit() -> None:
    off = {"gamma": 0.0, "eta": 0.0, "admission": "reservoir"}
    plus = trained(SNCL(alpha=0.7, beta=0.3, **off))  # type: ignore[arg-type]
    assert torch.equal(weights(plus), weights(trained(DER(logits=0.3, labels=0.7))))
    plain = trained(SNCL(alpha=0.0, beta=0.3, **off))  # type: ignore[arg-type]
    assert torch.equal(weights(plain), weights(trained(DER(logits=0.3))))


@pytest.mark.parametrize("part", [{"gamma": 1.0}, {"eta": 0.1}, {"admission": "loss-aware"}], ids=["FER", "VBS", "LRS"])
def test_each_part_on_changes_the_result(part: dict[str, float]) -> None:
    off = {"gamma": 0.0, "eta": 0.0, "admission": "reservoir"}
    with_part = trained(SNCL(alpha=0.7, beta=0.3, **(off | part)))  # type: ignore[arg-type]
    assert not torch.equal(weights(with_part), weights(trained(DER(logits=0.3, labels=0.7))))


def test_a_part_that_is_off_moves_no_random_number_of_another() -> None:
    """Paired comparisons: what is replayed and admitted is the same with and without gates and features."""
    alone = trained(SNCL(alpha=0.7, beta=0.3, gamma=0.0, eta=0.0, admission="reservoir"))
    both = trained(SNCL(alpha=0.7, beta=0.3, gamma=1.0, eta=0.01, admission="reservoir"))
    assert alone.memory is not None and both.memory is not None
    assert torch.equal(alone.memory.fields["x"], both.memory.fields["x"])
    ours, theirs = alone.random.state(), both.random.state()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if name != "gates")


def test_a_strong_pull_closes_gates_and_a_released_one_does_not() -> None:
    strong = trained(SNCL(0.7, 0.3, gamma=0.0, eta=1.0, gate_lr=20.0, parameterisation="lambda"))
    released = trained(SNCL(0.7, 0.3, gamma=0.0, eta=1.0, gate_lr=20.0, parameterisation="lambda", release=1e6))
    closed = [sum(int((~gate.is_open()).sum()) for _, gate in gates(each.net)) for each in (strong, released)]
    assert closed[0] > 0 and closed[1] == 0


NATURAL = {"parameterisation": "lambda", "natural": 0.05, "start": 0.5}


def test_gates_that_start_closed_are_opened_by_data() -> None:
    method = SNCL(0.7, 0.3, gamma=1.0, eta=0.01, release=10.0, **NATURAL)  # type: ignore[arg-type]
    before = method.prepare(MLP(6, 3, width=5), torch.rand(2, 6), generator(0))
    assert not any(gate.is_open().any() for _, gate in gates(before))
    after = trained(SNCL(0.7, 0.3, gamma=1.0, eta=0.01, release=10.0, **NATURAL)).net  # type: ignore[arg-type]
    assert all(gate.is_open().any() for _, gate in gates(after))


def test_natural_steps_leave_the_spread_to_no_optimiser_and_the_mean_to_the_data() -> None:
    method = SNCL(alpha=1.0, beta=1.0, gamma=0.0, eta=0.1, **NATURAL)  # type: ignore[arg-type]
    subject = method.prepare(MLP(6, 3, width=5), torch.rand(2, 6), generator(0))
    plain, gated = method.parameter_groups(subject, lr=0.2)
    assert {id(each) for each in gated["params"]} == {id(gate.mu) for _, gate in gates(subject)}
    assert len(plain["params"]) == 6
    losses = method.observe(subject, {"x": torch.rand(4, 6), "y": torch.zeros(4).long()}, ()).losses
    assert losses["sparsity"] > 0 and not losses["sparsity"].requires_grad


def test_natural_steps_resume_exactly(tmp_path: Path) -> None:
    rows = blobs(25)

    def make(seed: int) -> Learner:
        torch.manual_seed(0)
        method = SNCL(0.7, 0.3, gamma=1.0, eta=0.01, release=10.0, worth=1e-3, **NATURAL)  # type: ignore[arg-type]
        return Learner(MLP(6, 3, width=5), method, memory=16, replay=8, lr=0.1, device="cpu", seed=seed)

    def go(learner: Learner, start: int, stop: int) -> None:
        for x, y in rows[start:stop]:
            learner.learn(x, y)

    assert goes_on_exactly(make, go, 11, 25, tmp_path)


RESERVE = {"reserve": 0.4, "natural": 0.3}


def test_a_reserve_is_kept_and_resumes_exactly(tmp_path: Path) -> None:
    rows = blobs(40)

    def make(seed: int) -> Learner:
        torch.manual_seed(0)
        method = SNCL(0.7, 0.3, gamma=1.0, eta=0.01, **RESERVE)  # type: ignore[arg-type]
        return Learner(MLP(6, 3, width=5), method, memory=16, replay=8, lr=0.1, device="cpu", seed=seed)

    def go(learner: Learner, start: int, stop: int) -> None:
        for x, y in rows[start:stop]:
            learner.learn(x, y)

    learner = make(0)
    go(learner, 0, 40)
    closed = sum(int((~gate.is_open()).sum()) for _, gate in gates(learner.net))
    assert closed in (3, 4, 5)  # about four of ten: relevance goes on moving
    assert "sparsity" not in learner.learn(*rows[0])  # no weight that would mean anything
    assert goes_on_exactly(make, go, 11, 40, tmp_path)


def test_a_reserve_needs_no_other_setting() -> None:
    named = SNCL(1.0, 1.0, 1.0, 0.1, reserve=0.4, worth=0.1, commitment=1.0, **(NATURAL | {"natural": 0.02}))  # type: ignore[arg-type]
    alone = SNCL(1.0, 1.0, 1.0, 0.1, reserve=0.4)
    spreads = [[gate.log_spread for _, gate in gates(trained(method).net)] for method in (named, alone)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*spreads, strict=True))
    assert any((spread != -9.0).any() for spread in spreads[0])


def test_a_reserve_that_cannot_be_is_refused() -> None:
    with pytest.raises(SnclError, match="at least 0 and below 1, not 1"):
        SNCL(1.0, 1.0, 1.0, 0.1, **(RESERVE | {"reserve": 1}))  # type: ignore[arg-type]
    with pytest.raises(SnclError, match="eta=0 takes them away"):
        SNCL(1.0, 1.0, 1.0, eta=0.0, reserve=0.3)


def test_a_handover_changes_what_is_predicted_and_not_what_is_learned(tmp_path: Path) -> None:
    rows = blobs(25)

    def make(seed: int, handover: float = 0.1) -> Learner:
        torch.manual_seed(0)
        method = SNCL(0.7, 0.3, 1.0, eta=0.01, release=10.0, worth=1e-3, handover=handover, **NATURAL)  # type: ignore[arg-type]
        return Learner(MLP(6, 3, width=20), method, memory=16, replay=8, lr=0.1, device="cpu", seed=seed)

    def go(learner: Learner, start: int, stop: int) -> None:
        for x, y in rows[start:stop]:
            learner.learn(x, y)

    handing, silent = make(0), make(0, handover=0.0)
    for learner in (handing, silent):
        go(learner, 0, 25)
    for (_, ours), (_, theirs) in zip(gates(handing.net), gates(silent.net), strict=True):
        assert torch.equal(ours.log_spread, theirs.log_spread) and torch.equal(ours.mu, theirs.mu)
        assert ours.is_open().any() and not ours.is_open().all()
    x = rows[0][0]
    assert not torch.equal(handing.logits(x), silent.logits(x))
    small = prune(handing.net, x)
    torch.testing.assert_close(small(x), handing.logits(x))
    assert goes_on_exactly(make, go, 11, 25, tmp_path)


def test_a_cut_closes_what_is_in_doubt() -> None:
    settings = {"parameterisation": "lambda", "natural": 0.05, "release": 10.0}
    usual, strict = (trained(SNCL(0.7, 0.3, 1.0, 0.01, cut=cut, **settings)) for cut in (0.0, -8.5))  # type: ignore[arg-type]
    for (_, ours), (_, theirs) in zip(gates(strict.net), gates(usual.net), strict=True):
        assert torch.equal(ours.log_spread, theirs.log_spread)  # training knows nothing of it
        assert theirs.is_open().all() and torch.equal(ours.is_open(), ours.log_spread < -8.5)
    assert not all(gate.is_open().all() for _, gate in gates(strict.net))
    with pytest.raises(SnclError, match=r"from -10 to 0, not 0\.5"):
        SNCL(1.0, 1.0, 1.0, 0.1, cut=0.5)
    with pytest.raises(SnclError, match="one of the two is 0"):
        SNCL(1.0, 1.0, 1.0, 0.1, cut=-1.0, worth=0.1, **settings)  # type: ignore[arg-type]


def test_a_handover_that_cannot_be_is_refused() -> None:
    with pytest.raises(SnclError, match=r"above 0, not -0\.1"):
        SNCL(1.0, 1.0, 1.0, 0.1, handover=-0.1)
    with pytest.raises(SnclError, match="reserve or handover is 0"):
        SNCL(1.0, 1.0, 1.0, 0.1, handover=0.1, reserve=0.3)


def test_natural_steps_need_lambda() -> None:
    with pytest.raises(SnclError, match="natural > 0 needs parameterisation=lambda"):
        SNCL(1.0, 1.0, 1.0, 0.1, natural=0.02)
    with pytest.raises(SnclError, match="worth > 0 needs natural > 0"):
        SNCL(1.0, 1.0, 1.0, 0.1, worth=0.1)


def test_gates_have_their_own_step_size() -> None:
    method = SNCL(alpha=1.0, beta=1.0, gamma=0.0, eta=0.1, gate_lr=0.5)
    subject = method.prepare(MLP(6, 3, width=5), torch.rand(2, 6), generator(0))
    groups = method.parameter_groups(subject, lr=0.2)
    assert [group["lr"] for group in groups] == [0.2, 0.1]
    assert sum(len(group["params"]) for group in groups) == len(list(subject.parameters()))
    assert len(groups[1]["params"]) == 4


def test_feature_options() -> None:
    x = torch.rand(3, 6)
    named = SNCL(alpha=1.0, beta=1.0, gamma=1.0, eta=0.0, features="layer2", stored="float32")
    subject = named.prepare(MLP(6, 3, width=5), x, generator(0))
    remembered = named.observe(subject, {"x": x, "y": torch.zeros(3).long()}, ()).remember
    assert {name for name in remembered if "/" in name} == {"features/layer2"}
    assert remembered["features/layer2"].dtype == torch.float32


def test_maps_and_sequences_are_pooled_to_their_channels() -> None:
    method, full = SNCL(1.0, 1.0, 1.0, 0.0), SNCL(1.0, 1.0, 1.0, 0.0, maps="full")
    method.axes = {"images": 1, "channels last": -1, "sequence": -1, "signal": 1, "flat": -1}
    shapes = {"images": (2, 4, 3, 3), "channels last": (2, 3, 3, 4), "sequence": (2, 7, 4), "signal": (2, 4, 7)}
    features = {name: torch.rand(shape) for name, shape in shapes.items()} | {"flat": torch.rand(2, 4)}
    over = {"images": (2, 3), "channels last": (1, 2), "sequence": 1, "signal": 2}
    pooled = method._kept(features)
    for name, axes in over.items():
        torch.testing.assert_close(pooled[name], features[name].mean(axes))
    assert pooled["flat"] is features["flat"]
    assert all(full._kept(features)[name] is value for name, value in features.items())


def test_admissions_and_bad_words() -> None:
    assert isinstance(SNCL(1.0, 1.0, 1.0, 0.0).admission, LossAwareReservoir)
    assert isinstance(SNCL(1.0, 1.0, 1.0, 0.0, admission="reservoir").admission, Reservoir)
    with pytest.raises(SnclError, match="admission is one of reservoir, loss-aware, not 'best'"):
        SNCL(1.0, 1.0, 1.0, 0.0, admission="best")
