"""The last good state is never lost: not by saving weights that are no numbers, and not by a load that is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sncl.errors import Diverged, SnclError
from sncl.tensors.fields import Fields
from sncl.training.learner import Learner

Change = Callable[[Fields, dict[str, Any]], None]


def make(method: str = "derpp", seed: int = 0, ema: float = 0.9, grow: bool = True) -> Learner:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    return Learner(net, method, memory=20, replay=8, device="cpu", ema=ema, grow=grow, seed=seed, optimizer=momentum)


def momentum(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


def batches(count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(seed)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(3, (8,), generator=numbers)) for _ in range(count)]


def trained(method: str = "derpp", seed: int = 0, steps: int = 6) -> Learner:
    learner = make(method, seed)
    for batch in batches(steps, seed):
        learner.learn(*batch)
    return learner


def differences(ours: Learner, theirs: Learner) -> list[str]:
    first, second = ours.state(), theirs.state()
    apart = [name for name in first.keys() | second.keys() if not torch.equal(first[name], second[name])]
    return apart if apart or ours.description() == theirs.description() else ["description"]


# --- loading is all or nothing -------------------------------------------------------------------------------------


def replaced(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    def change_it(tensors: Fields, description: dict[str, Any]) -> None:
        tensors[name] = change(tensors[name])

    return change_it


def without(name: str) -> Change:
    def leave_out(tensors: Fields, description: dict[str, Any]) -> None:
        del tensors[name]

    return leave_out


def with_moment(name: str) -> Change:
    def add(tensors: Fields, description: dict[str, Any]) -> None:
        tensors[f"optimizer/{name}/momentum_buffer"] = torch.zeros(1)

    return add


def forgetful(tensors: Fields, description: dict[str, Any]) -> None:
    for name in ("x", "y", "logits"):
        del tensors[f"memory/rows/{name}"]


def saying(**values: Any) -> Change:
    return lambda tensors, description: description.update(values)


def extra(tensors: Fields, description: dict[str, Any]) -> None:
    tensors["network/9.weight"] = torch.zeros(3)


UNFIT: dict[str, Change] = {
    "last layer of another shape": replaced("network/3.weight", lambda value: value[:, :5]),
    "another type": replaced("network/3.weight", torch.Tensor.double),
    "a layer too many": extra,
    "no last layer": without("network/3.bias"),
    "no average": without("ema/3.bias"),
    "average of another shape": replaced("ema/3.bias", lambda value: value[:1]),
    "moment of another shape": replaced("optimizer/0/momentum_buffer", lambda value: value[:3]),
    "moment of an unknown parameter": with_moment("99"),
    "moment without a number": with_moment("x"),
    "samples of another shape": replaced("memory/rows/x", lambda value: value[:, :4]),
    "samples of another type": replaced("memory/rows/x", torch.Tensor.double),
    "fewer samples": replaced("memory/rows/x", lambda value: value[:7]),
    "one sample": replaced("memory/rows/y", lambda value: value[:1]),
    "logits of another width": replaced("memory/rows/logits", lambda value: value[:, :2]),
    "labels without an output": replaced("memory/rows/y", lambda value: value + 50),
    "samples without labels": without("memory/rows/y"),
    "no samples": forgetful,
    "no count": without("memory/count"),
    "a count below 0": replaced("memory/count", torch.Tensor.neg),
    "a count of three": replaced("memory/count", lambda value: value[:3]),
    "a broken count": replaced("memory/count", lambda value: value + 0.5),
    "no random numbers": without("random/gates"),
    "random numbers cut off": replaced("random/admission", lambda value: value[:10]),
    "steps in words": saying(steps="many"),
    "steps below 0": saying(steps=-3),
    "a batch of half a sample": saying(rows=0.5),
    "outputs nobody could store": saying(grown=[10**12]),
    "outputs that fall": saying(grown=[9, 5]),
    "no outputs named": saying(grown=None),
    "an example of another kind": saying(example=3),
}


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("fresh", [False, True], ids=["trained", "fresh"])
def test_a_checkpoint_that_is_refused_changes_nothing(name: str, fresh: bool, tmp_path: Path) -> None:
    """The learner, its twin and the network it was made from predict and learn on alike, bit for bit."""
    ours, twin = (make(seed=1) if fresh else trained(seed=1) for _ in range(2))
    saved = trained(seed=2)
    tensors, description = saved.state(), saved.description()
    if name == "an example of another kind":
        tensors = {key: value for key, value in tensors.items() if not key.startswith("example/")}
    UNFIT[name](tensors, description)
    body = {key: value.clone() for key, value in ours.body.state_dict().items()}
    with pytest.raises(SnclError, match="this checkpoint") as refused:
        ours.restore(tensors, description)
    assert "\n" not in str(refused.value)
    assert body.keys() == ours.body.state_dict().keys()
    assert all(torch.equal(value, ours.body.state_dict()[key]) for key, value in body.items())
    probe = batches(1, seed=9)[0][0]
    if not fresh:
        assert differences(ours, twin) == []
        assert torch.equal(ours.logits(probe), twin.logits(probe))
    for batch in batches(4, seed=5):
        assert torch.equal(sum(ours.learn(*batch).values()), sum(twin.learn(*batch).values()))  # type: ignore[arg-type]
    assert differences(ours, twin) == []


def test_what_fits_is_loaded_as_ever_and_draws_no_random_numbers(tmp_path: Path) -> None:
    saved, ours = trained(seed=2), trained(seed=1)
    saved.save(tmp_path / "saved")
    before = torch.get_rng_state()
    ours.load(tmp_path / "saved")
    assert torch.equal(before, torch.get_rng_state())
    for batch in batches(4, seed=5):
        ours.learn(*batch)
        saved.learn(*batch)
    assert differences(ours, saved) == ["example/x"]  # of its own first batch, and only looked at


def test_outputs_and_tasks_of_a_refused_checkpoint_are_not_added() -> None:
    grown = trained()
    grown.learn(torch.randn(4, 6), torch.tensor([0, 7, 2, 3]))
    tensors, description = grown.state(), grown.description()
    tensors["memory/rows/x"] = tensors["memory/rows/x"][:, :3]
    ours, twin = trained(seed=1), trained(seed=1)
    with pytest.raises(SnclError, match="'x'"):
        ours.restore(tensors, description)
    assert ours.outputs == 3 and differences(ours, twin) == []

    tasks = Learner(nn.Linear(6, 3), "lwf", device="cpu")
    tasks.learn(*batches(1)[0])
    with pytest.raises(SnclError, match="damaged"):
        tasks.restore(tasks.state(), tasks.description() | {"tasks": -1})
    assert tasks.tasks == 0


def test_a_network_that_cannot_be_copied_is_loaded_all_the_same(tmp_path: Path) -> None:
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> None:
            raise RuntimeError("only one of me")

    torch.manual_seed(0)
    first, second = (Learner(Stubborn(6, 3), "er", device="cpu", memory=5) for _ in range(2))
    first.learn(*batches(1)[0])
    first.save(tmp_path / "saved")
    second.load(tmp_path / "saved")
    assert differences(first, second) == []


# --- saving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_not_written_over_a_good_file(tmp_path: Path, value: float) -> None:
    path, learner = tmp_path / "saved", trained()
    learner.save(path)
    good = path.read_bytes()
    broken = deepcopy(learner)
    with torch.no_grad():
        broken.net.body[0].weight[0, 0] = value  # type: ignore[index, union-attr]
    with pytest.raises(Diverged, match=r"weights '0.weight' became (nan|infinite) by step 6") as refused:
        broken.save(path)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == good and [each.name for each in tmp_path.iterdir()] == ["saved"]
    broken.load(path)
    assert differences(broken, learner) == []


def test_a_mask_of_infinities_is_no_weight(tmp_path: Path) -> None:
    net = nn.Linear(6, 3)
    net.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    learner = Learner(net, "er", device="cpu", memory=5)
    learner.learn(*batches(1)[0])
    learner.save(tmp_path / "saved")
    learner.load(tmp_path / "saved")


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_the_file_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:  # as on some network and FAT file systems

        def refused(*names: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "link", refused)
    path, learner, stream = tmp_path / "saved", make(), batches(4)
    states = []
    for batch in stream:
        learner.learn(*batch)
        learner.save(path)
        states.append(deepcopy(learner))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["saved", "saved.previous"]
    other = make(seed=3)
    other.load(tmp_path / "saved.previous")
    assert differences(other, states[-2]) == []


def test_a_damaged_file_says_where_the_one_before_is(tmp_path: Path) -> None:
    path, learner = tmp_path / "saved", trained()
    learner.save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(SnclError, match=r"damaged .* start over$"):
        learner.load(path)
    learner.save(path)
    learner.save(path)
    path.write_bytes(b"")
    with pytest.raises(SnclError, match=r"what was saved before it is in .*saved\.previous"):
        learner.load(path)
    learner.load(tmp_path / "saved.previous")


def test_a_crash_between_the_two_names_leaves_both_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, learner = tmp_path / "saved", trained()
    learner.save(path)
    os.link(path, tmp_path / "saved.previous")  # what a crash behind the first of the two leaves
    learner.save(path)
    learner.save(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["saved", "saved.previous"]


# --- inputs that were computed from something ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sncl", "derpp", "gss", "icarl", "hal"])
def test_inputs_that_require_grad_are_taken_as_numbers(method: str, tmp_path: Path) -> None:
    def plain(value: Tensor) -> Tensor:
        return value

    def computed(value: Tensor) -> Tensor:
        return (value.clone().requires_grad_() * 1.0).requires_grad_()

    def inferred(value: Tensor) -> Tensor:
        with torch.inference_mode():
            return value.clone()

    ended = []
    for given in (plain, computed, inferred):
        torch.manual_seed(0)
        learner = Learner(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), method, memory=20, device="cpu")
        stream = batches(8)
        for x, y in stream:
            losses = learner.learn(given(x), y)
            assert not any(value.requires_grad for value in losses.values())
        learner.boundary(given(torch.cat([x for x, _ in stream])), torch.cat([y for _, y in stream]))
        learner.learn(given(stream[0][0]), stream[0][1])
        assert not learner.logits(given(stream[0][0])).requires_grad
        assert not any(value.requires_grad for value in learner.memory.fields.values())  # type: ignore[union-attr]
        assert not any(value.requires_grad for value in learner.signature.example.values())
        learner.save(tmp_path / "saved")
        learner.load(tmp_path / "saved")
        ended.append(learner)
    assert differences(ended[0], ended[1]) == [] and differences(ended[0], ended[2]) == []


def test_lists_and_dictionaries_of_such_inputs_are_taken_too() -> None:
    learner = Learner(nn.Linear(6, 3), "er", memory=5, device="cpu")
    x, y = batches(1)[0]
    learner.learn([row.requires_grad_() for row in x.unbind()], list(y))
    assert len(learner.predict(list(x))) == len(x)


def test_a_memory_keeps_numbers_whatever_it_is_offered() -> None:
    learner = trained("er")
    memory = learner.memory
    assert memory is not None
    offered = torch.randn(8, 6, requires_grad=True) * 2
    memory.admit({"x": offered, "y": torch.zeros(8).long()}, torch.zeros(8, 3, dtype=torch.float64))
    memory.refresh({"slot": torch.arange(8), "x": offered})
    assert not any(value.requires_grad for value in memory.fields.values())
    memory.replace({"x": offered, "y": torch.zeros(8).long()})
    assert not any(value.requires_grad for value in memory.fields.values())
