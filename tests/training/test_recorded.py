"""A replayed step is the step as it is written, bit for bit; and what is replaced, or not known, is not replayed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from resuming import goes_on_exactly, same
from shipped import FORMS, Shipped, shipped
from torch import Tensor, nn

from sncl.methods.table import METHODS, make
from sncl.networks.mlp import MLP
from sncl.streams.standardisation import RunningScale
from sncl.training import recorded
from sncl.training.learner import Learner
from sncl.training.replaying import CallList

STEPS = 24
REPLAYED = {name for name in METHODS if make(name).capturable}  # others decide things on the host in every step
REPLAYED -= {"icarl"}  # where PyTorch looks at the labels of a one-hot encoding


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[CallList]:
    """The replays there were so far."""
    made: list[CallList] = []

    class Counted(CallList):
        def __call__(self, inputs: Any) -> list[Tensor]:
            made.append(self)
            return super().__call__(inputs)

    monkeypatch.setattr(recorded, "CallList", Counted)
    return made


def feed(learner: Learner, subject: Shipped, begin: int = 0, end: int = STEPS) -> Iterator[Tensor]:
    """Batches of two sizes, boundaries where the method wants them, and predictions in between."""
    rows = subject.batches(STEPS)
    for number in range(begin, end):
        x, y = rows[number]
        size = 5 if number % 6 == 5 else 8
        yield from learner.learn(x[:size], y[:size]).values()
        if number + 1 == STEPS // 2 and (learner.method.needs_boundaries or learner.method.expands):
            learner.boundary(*(torch.cat(each) for each in zip(*rows[: number + 1], strict=True)))
        yield learner.logits(x[:1], task=0)


def as_written(run: Callable[[], Any]) -> Any:
    """What comes of it where nothing is ever recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "CALLS_BEFORE", 10**9)
        return run()


@pytest.mark.parametrize("name", FORMS)
def test_replays_are_the_written_step_bit_for_bit(name: str, replays: list[CallList]) -> None:
    """Losses, predictions, network, average, memory, states of methods and random numbers."""
    subject = FORMS[name]
    ours, theirs = subject.learner(), subject.learner()
    found = list(feed(ours, subject))
    steps = [each for each in replays if len(each.recording.returned) > 1 or each.recording.inputs > 1]
    wanted = as_written(lambda: list(feed(theirs, subject)))
    assert all(map(torch.equal, found, wanted))
    assert same(ours, theirs)
    assert len(replays) >= STEPS // 4  # of predictions, at least
    assert bool(steps) == (subject.method in REPLAYED)


OPTIONS: dict[str, dict[str, Any]] = {
    "clip": {"clip": 1.5},
    "average": {"ema": 0.9},
    "one sample": {"replay": 1},
    "scale": {"transform": RunningScale(FEATURES)},
    "full memory": {"memory": 300},  # whose tensors are replaced by longer ones
}


def learner_with(options: dict[str, Any], seed: int = 0, method: str = "sncl") -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES))
    return Learner(net, method, device="cpu", seed=seed, **({"lr": 0.02, "replay": 8, "memory": 20} | options))


def learn(learner: Learner, begin: int, end: int, rows: int = 8) -> None:
    for x, y in batches(40, rows)[begin:end]:
        learner.learn(x, y, torch.ones(rows) / 3 if begin else None)
        learner.predict(x)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("name", OPTIONS)
def test_so_they_are_with_every_option(name: str, rows: int, replays: list[CallList]) -> None:
    """With dropout, which draws; and with weights from the middle on."""
    options = OPTIONS[name]
    ours, theirs = (learner_with(copy.deepcopy(options)) for _ in range(2))
    for each in (ours, theirs):
        with pytest.MonkeyPatch.context() as patch:
            if each is theirs:
                patch.setattr(recorded, "CALLS_BEFORE", 10**9)
            learn(each, 0, 20, rows)
            learn(each, 20, 40, rows)
    assert len(replays) > 40
    assert any(each.draws for each in replays)
    assert same(ours, theirs)


@pytest.mark.parametrize("stop", [2, 3, 5, 19])
@pytest.mark.parametrize("gates", ["grow", "kl", "off"])
def test_a_resumed_run_replays_from_other_steps_on_and_is_the_same(gates: str, stop: int, tmp_path: Path) -> None:
    method = Shipped("sncl", shipped("sncl", {}, gates=gates).settings)
    assert goes_on_exactly(
        lambda seed: method.learner(seed=seed),
        lambda learner, begin, end: list(feed(learner, method, begin, end)) and None,
        *(stop, STEPS, tmp_path),
    )


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_replays_on_tensors_of_its_own(twin: Callable[[Learner], Learner], replays: list[CallList]) -> None:
    first = learner_with({})
    learn(first, 0, 20)
    second = twin(first)
    before = second.state()
    learn(first, 20, 40)
    assert all(torch.equal(before[name], value) for name, value in second.state().items())
    learn(second, 20, 40)
    assert same(first, second)


def test_outputs_may_grow_between_replays(replays: list[CallList]) -> None:
    ours, theirs = (
        Learner(MLP(FEATURES, 2, width=16), "sncl", device="cpu", memory=20, replay=8, grow=True, lr=0.02)
        for _ in range(2)
    )
    theirs.body.load_state_dict(ours.body.state_dict())
    learn(ours, 0, 40)
    assert ours.outputs == CLASSES
    assert len({len(each.recording.calls) for each in replays}) > 1
    as_written(lambda: learn(theirs, 0, 40))
    assert same(ours, theirs)


def layers(learner: Learner) -> Any:
    return learner.net.body


def replace_parameter(learner: Learner) -> None:
    layers(learner)[0].bias = nn.Parameter(torch.ones(16))


def replace_data(learner: Learner) -> None:
    layers(learner)[0].weight.data = torch.ones(16, FEATURES)


def freeze(learner: Learner) -> None:
    layers(learner)[0].weight.requires_grad_(False)


def replace_module(learner: Learner) -> None:
    layers(learner)[2] = nn.Dropout(0.5)


def fewer_dropped(learner: Learner) -> None:
    layers(learner)[2].p = 0.5


def hook(learner: Learner) -> None:
    layers(learner)[1].register_forward_hook(lambda module, inputs, output: output * 2)


def gradient_hook(learner: Learner) -> None:
    layers(learner)[0].weight.register_hook(lambda gradient: gradient * 2)


def weigh_otherwise(learner: Learner) -> None:
    learner.method.alpha = 2.0


def longer_steps(learner: Learner) -> None:
    learner.ready.optimizer.groups[0] = (learner.ready.optimizer.groups[0][0], 0.1)  # type: ignore[attr-defined]


def other_weights(learner: Learner) -> None:
    learner.body.load_state_dict({name: value + 0.1 for name, value in learner.body.state_dict().items()})


CHANGES = [
    *(replace_parameter, replace_data, freeze, replace_module, fewer_dropped, hook, gradient_hook),
    *(weigh_otherwise, longer_steps, other_weights),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_user_replaces_is_noticed(change: Callable[[Learner], None], replays: list[CallList]) -> None:
    ours, theirs, unchanged = (learner_with({}) for _ in range(3))
    learn(ours, 0, 20)
    assert replays
    change(ours)
    learn(ours, 20, 40)
    as_written(lambda: learn(theirs, 0, 20))
    change(theirs)
    as_written(lambda: learn(theirs, 20, 40))
    learn(unchanged, 0, 40)
    assert same(ours, theirs)
    assert not same(ours, unchanged)


def test_a_global_mode_is_obeyed(replays: list[CallList]) -> None:
    ours, theirs = learner_with({}), learner_with({})
    learn(ours, 0, 20)
    as_written(lambda: learn(theirs, 0, 20))
    before = len(replays)
    modes: list[AbstractContextManager[Any]] = [torch.autocast("cpu", torch.bfloat16)]
    modes += [torch.autograd.set_detect_anomaly(True)]
    for mode in modes:
        with mode:
            learn(ours, 20, 24)
            assert len(replays) == before
            as_written(lambda: learn(theirs, 20, 24))
    assert same(ours, theirs)
    x, y = batches(1)[0]
    with torch.no_grad(), pytest.raises(RuntimeError, match="grad"):  # there is nothing to learn by
        ours.learn(x, y)


class Counting(nn.Module):
    """A layer of somebody else, which does something else every third time; no recording of two steps shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        return x * (1 + (self.calls[0] % 3 == 0))


class Doubled(nn.Linear):
    """A known layer with an unknown end."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def unknown_networks() -> dict[str, nn.Module]:
    first, last = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)
    hooked, patched = nn.ReLU(), nn.ReLU()
    hooked.register_forward_pre_hook(lambda module, inputs: None)
    patched.forward = torch.tanh  # type: ignore[method-assign]
    parametrised = nn.utils.parametrizations.weight_norm(nn.Linear(16, CLASSES))
    return {
        "counts": nn.Sequential(first, Counting(), last),
        "subclass": nn.Sequential(first, nn.ReLU(), Doubled(16, CLASSES)),
        "hook": nn.Sequential(first, hooked, last),
        "patched": nn.Sequential(first, patched, last),
        "parametrised": nn.Sequential(first, nn.ReLU(), parametrised),
    }


@pytest.mark.parametrize("name", unknown_networks())
def test_what_is_not_known_is_not_replayed(name: str, replays: list[CallList]) -> None:
    nets = [copy.deepcopy(unknown_networks()[name]) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours, theirs = (Learner(net, "er", device="cpu", memory=20, replay=8, lr=0.02) for net in nets)
    learn(ours, 0, 20)
    as_written(lambda: learn(theirs, 0, 20))
    assert not replays
    assert same(ours, theirs)


def test_a_replay_leaves_no_gradient_of_an_earlier_step(replays: list[CallList]) -> None:
    learner = learner_with({})
    learn(learner, 0, 1)
    assert all(each.grad is not None for each in learner.net.parameters())
    learn(learner, 1, 20)
    assert replays
    assert all(each.grad is None for each in learner.net.parameters())


def test_another_optimiser_is_not_replayed(replays: list[CallList]) -> None:
    """Its steps may count on the host; predictions are replayed all the same."""
    learner = learner_with({"optimizer": torch.optim.Adam})
    learn(learner, 0, 20)
    assert replays
    assert not any(each.recording.returned[1:] for each in replays)


def test_batch_norm_follows_the_data_in_replays(replays: list[CallList]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))
    ours, theirs = (Learner(copy.deepcopy(net), "derpp", device="cpu", memory=20, replay=8) for _ in range(2))
    learn(ours, 0, 20)
    as_written(lambda: learn(theirs, 0, 20))
    assert replays
    assert int(ours.net.body[1].num_batches_tracked) == 20 * 3 - 2  # type: ignore[index]
    assert same(ours, theirs)


def test_inputs_that_are_views_of_others_are_not_replayed(replays: list[CallList]) -> None:
    ours, theirs = learner_with({}, method="er"), learner_with({}, method="er")
    rows = [(torch.stack([x, x], 2)[..., 0], y) for x, y in batches(12)]
    for x, y in rows:
        assert not x.is_contiguous()
        ours.learn(x, y)
        theirs.learn(x.contiguous(), y)
    assert same(ours, theirs)


def test_many_forms_are_forgotten_again() -> None:
    learner = learner_with({}, method="er")
    for rows in range(1, recorded.MOST_FORMS + 20):
        learner.learn(torch.rand(rows, FEATURES), torch.zeros(rows, dtype=torch.int64))
    engine: Any = learner.ready.engine
    assert len(engine._recorded._forms) <= recorded.MOST_FORMS
