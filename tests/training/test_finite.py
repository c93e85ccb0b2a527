"""One rule for what is stored: weights, running statistics and their averages are finite, other buffers no NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from digit_streams import made
from torch import Tensor, nn

from sncl import ContinualClassifier, follow
from sncl.errors import Diverged
from sncl.training.events import Moment
from sncl.training.finite import SMALL, STEPS_AT_ONCE, FiniteCheck, LossWatch
from sncl.training.learner import Learner
from sncl.training.run import CHECKPOINT, run

Damage = Callable[[Learner], None]


class Masked(nn.Module):
    """A network with every kind of tensor: weights, running statistics and a mask of infinities."""

    mask: Tensor

    def __init__(self, features: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, classes)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x)) + self.mask[:1]
        return logits


def set_to(name: str, value: float, average: bool = False) -> Damage:
    def damage(learner: Learner) -> None:
        tensors = learner.ready.net.body.state_dict()
        if average:
            assert learner.ready.average is not None
            tensors = learner.ready.average.slow
        tensors[name].view(-1)[0] = value

    return damage


NAN, INF = float("nan"), float("inf")
REFUSED: dict[str, tuple[Damage, str]] = {
    "nan weight": (set_to("head.bias", NAN), "'head.bias' became nan"),
    "infinite weight": (set_to("head.bias", INF), "'head.bias' became infinite"),
    "nan in the average": (set_to("head.bias", NAN, average=True), "'head.bias' became nan"),
    "infinite average": (set_to("body.1.weight", -INF, average=True), "'body.1.weight' became infinite"),
    "infinite statistics": (set_to("body.2.running_var", INF), "'body.2.running_var' became infinite"),
    "infinite average of statistics": (set_to("body.2.running_mean", INF, average=True), "'body.2.running_mean'"),
    "nan in a mask": (set_to("mask", NAN), "'mask' became nan"),
}
STORED: dict[str, Damage] = {"mask": lambda learner: None, "another mask": set_to("mask", INF)}


def by_learner(folder: Path, damage: Damage) -> Path:
    learner = Learner(Masked(), "er", memory=20, device="cpu", ema=0.9)
    learner.learn(torch.rand(8, 64), torch.arange(8))
    damage(learner)
    learner.save(folder / "saved")
    return folder / "saved"


def by_run(folder: Path, damage: Damage) -> Path:
    stream = made("seq-digits", tasks=1, batch_size=256)
    learner = Learner(Masked(), "er", memory=20, device="cpu", ema=0.9, transform=stream.transform)

    def watch(moment: Moment) -> None:
        if moment.steps == moment.total and moment.accuracy is not None:
            damage(learner)

    run(learner, stream, 1, folder, {"name": "rule"}, watch=watch, checkpoint_seconds=1000)
    return folder / CHECKPOINT


def by_follow(folder: Path, damage: Damage) -> Path:
    learner = Learner(Masked(), "er", memory=20, device="cpu", ema=0.9)
    items = [(torch.rand(8, 64), torch.arange(8)), torch.rand(8, 64)]  # what has no labels is only predicted
    answers = follow(learner, items, snapshot=folder / "snapshot", seconds=1000)
    next(answers)
    damage(learner)
    list(answers)
    return folder / "snapshot"


def by_estimator(folder: Path, damage: Damage) -> Path:
    found = ContinualClassifier(method="er", memory=20, network=Masked(4, 3), ema=0.9, random_state=0)
    found.partial_fit(np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) % 3)
    damage(found.learner_)
    found.save(folder / "saved")
    return folder / "saved"


WAYS = [by_learner, by_run, by_follow, by_estimator]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("damage", REFUSED)
def test_what_is_refused(tmp_path: Path, way: Callable[[Path, Damage], Path], damage: str) -> None:
    change, words = REFUSED[damage]
    with pytest.raises(Diverged, match=f"the weights {words}"):
        way(tmp_path, change)
    assert not [path for path in tmp_path.iterdir() if path.name in ("saved", "snapshot", CHECKPOINT)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", STORED)
def test_what_is_stored(tmp_path: Path, way: Callable[[Path, Damage], Path], change: str) -> None:
    assert way(tmp_path, STORED[change]).exists()


# --- a learner that diverges


def broken(method: str = "er", lr: float = 1e6) -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return Learner(net, method, memory=20, lr=lr, device="cpu")


@pytest.mark.parametrize("method", ["sgd", "er", "sncl", "derpp"])
def test_a_loss_that_is_no_number_raises_and_the_learner_is_of_no_use(tmp_path: Path, method: str) -> None:
    learner, x, y = broken(method), torch.rand(16, 64) * 100, torch.arange(16) % 10
    learner.learn(x, y)
    learner.save(tmp_path / "good")
    with pytest.raises(Diverged, match=r"the loss '\w+' became (nan|infinite) by step (\d+); use a smaller `lr`"):
        for _ in range(50):
            learner.learn(x, y)
    assert learner.steps < 50 and "diverged" in repr(learner)
    for use in (
        lambda: learner.learn(x, y),
        lambda: learner.predict(x),
        lambda: learner.predict_proba(x),
        lambda: learner.score(x, y),
        lambda: learner.save(tmp_path / "bad"),
        learner.snapshot,
    ):
        with pytest.raises(Diverged, match=r"became .* load what was saved before, or make another learner"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    learner.load(tmp_path / "good")
    assert learner.steps == 1 and learner.predict(x).shape == (16,)


def test_weights_that_the_last_update_broke_do_not_predict() -> None:
    learner, x = broken(), torch.rand(8, 64)
    learner.learn(x, torch.arange(8))
    before = learner.snapshot()
    with torch.no_grad():
        learner.net.body[2].weight.fill_(NAN)  # type: ignore[index, union-attr]
    with pytest.raises(Diverged, match=r"the weights '2\.weight' became nan"):
        learner.predict(x)
    with pytest.raises(Diverged):
        learner.snapshot()
    assert before.predict(x).shape == (8,)


def test_logits_that_are_nan_by_themselves_are_the_networks_own() -> None:
    class Blocked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x.sum(1, keepdim=True) > 0, super().forward(x), torch.nan)

    learner = Learner(Blocked(4, 3), "er", memory=5, device="cpu")
    learner.learn(torch.ones(4, 4), torch.arange(4) % 3)
    assert learner.logits(-torch.ones(1, 4)).isnan().all()


def test_following_does_not_skip_a_learner_that_diverged(tmp_path: Path) -> None:
    items = [(torch.rand(16, 64) * 100, torch.arange(16) % 10)] * 50
    with pytest.raises(Diverged):
        list(follow(broken("sncl"), items, snapshot=tmp_path / "live", every=1, skip_bad=True))


def test_losses_on_a_gpu_are_looked_at_some_steps_at_a_time() -> None:
    watch = LossWatch(torch.device("cuda"))
    good, bad = {"a": torch.tensor(2.0)}, {"a": torch.tensor(1.0), "b": torch.tensor(NAN)}
    for step in range(1, STEPS_AT_ONCE):
        watch.see(bad if step == 7 else good, step)  # no value is asked for
    assert watch.largest == 0 and not watch.diverged
    with pytest.raises(Diverged, match="the loss 'b' became nan by step 7"):
        watch.see(good, STEPS_AT_ONCE)
    with pytest.raises(Diverged, match="load what was saved before"):
        watch.refuse()
    watch.restart()
    watch.see(good, 1)
    watch.check()
    assert watch.largest == 2.0


def test_an_average_leaves_a_mask_as_it_is(tmp_path: Path) -> None:
    learner = Learner(Masked(), "er", memory=20, device="cpu", ema=0.9)
    for _ in range(3):
        learner.learn(torch.rand(8, 64), torch.arange(8))
    assert learner.logits(torch.rand(2, 64)).isfinite().all()
    with learner.predicting():
        assert learner.body.state_dict()["mask"].tolist() == [0.0, -INF]
    learner.save(tmp_path / "saved")
    other = Learner(Masked(), "er", memory=20, device="cpu", ema=0.9)
    other.load(tmp_path / "saved")
    x = torch.rand(2, 64)
    assert torch.equal(other.logits(x), learner.logits(x))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", ["short", "double", "long", "half", "strided", "number"])
def test_the_check_sees_every_number_where_it_lies(kind: str, value: float) -> None:
    tensors = {
        "short": torch.ones(3, 4, requires_grad=True),
        "double": torch.ones(5, dtype=torch.float64),
        "long": torch.ones(SMALL + 1),
        "half": torch.ones(5, dtype=torch.float16),
        "strided": torch.ones(4, 6)[:, ::2],
        "number": torch.ones(()),
        "integers": torch.ones(3, dtype=torch.int64),
    }
    check = FiniteCheck(tensors.values())
    assert check.is_finite()
    with torch.no_grad():
        tensors[kind][(-1,) * tensors[kind].dim()] = value
    assert not check.is_finite()
    with torch.no_grad():
        tensors[kind].fill_(2.0)
    assert check.is_finite()
    assert FiniteCheck([]).is_finite()
