"""Settings of training in runs: neutral ones are as if they were not there, the others are exact to resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import Sncl
from run_folders import same_run

from sncl import load
from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.runs.build import make_learner
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.settings import defaults
from sncl.streams.build import build
from sncl.streams.stream import Stream
from sncl.training import run as running
from sncl.training.descent import Descent
from sncl.training.events import Moment
from sncl.training.learner import Learner
from sncl.training.schedule import Place, StepSizes, batch_schedule

NEUTRAL = {
    "momentum": "0",
    "weight_decay": "0.0",
    "lr_drop": "1",
    "lr_drop_part": "0.1",
    "clip": "0",
    "class_weight": "none",
}
ALL = {"momentum": "0.9", "weight_decay": "0.001", "lr_drop": "0.1", "lr_drop_part": "0.3", "clip": "2", "lr": "0.01"}


def experiment(method: str = "sncl", stream: str = "seq-digits", **settings: str) -> Experiment:
    return plan(stream, method, memory=40, tasks=2, epochs=2, device="cpu", settings={"width": "16", **settings})


@pytest.mark.parametrize("method", METHODS)
def test_neutral_values_make_no_other_run(method: str) -> None:
    usual = experiment(method)
    assert experiment(method, **NEUTRAL).identity() == usual.identity()
    assert not usual.settings.keys() & NEUTRAL.keys()
    assert experiment(method, **ALL).settings == usual.settings | {key: float(text) for key, text in ALL.items()}


@pytest.mark.parametrize("method", ["er", "der", "derpp", "sncl"])
def test_a_method_says_how_labels_compete_only_where_it_is_not_the_usual_way(method: str) -> None:
    assert experiment(method, ace="0").identity() == experiment(method).identity()
    assert experiment(method, ace="1").settings == experiment(method).settings | {"ace": 1}
    with pytest.raises(SnclError, match="`ace` is 0"):
        experiment(method, ace="2")


def test_with_additions_another_way_is_said() -> None:
    assert experiment("sncl+").settings["ace"] == 1
    assert experiment("sncl+", ace="0").settings["ace"] == 0
    assert experiment("sncl+", ace="0").settings == experiment("sncl").settings | {"ace": 0}
    assert experiment("er-ace+").settings == experiment("er-ace").settings  # it always is
    assert experiment("er-ace+").name() != experiment("er-ace").name()


@pytest.mark.parametrize("method", ["sncl", "derpp", "er-ace"])
@pytest.mark.parametrize("memory", [200, 500, 5120])
@pytest.mark.parametrize("stream", ["seq-cifar10", "seq-tinyimagenet"])
def test_additions_are_the_same_for_all_methods_that_have_them(stream: str, memory: int, method: str) -> None:
    plain, more = defaults(stream, method, memory), defaults(stream, f"{method}+", memory)
    theirs, reference = defaults(stream, "sncl", memory), defaults(stream, "sncl+", memory)
    added = {key: value for key, value in more.items() if plain.get(key) != value}
    expected = {key: value for key, value in reference.items() if theirs.get(key) != value} | {"ema": 0.999}
    own = {key: value for key, value in expected.items() if key != "ace" or "ace" in METHODS[method].settings}
    assert added == {key: value for key, value in own.items() if plain.get(key) != value}


class Crash(BaseException):
    """The end of the process as far as the run can tell."""


@pytest.mark.parametrize("method", ["er", "sncl+", "pnn", "hal"])
def test_a_run_with_all_of_them_goes_on_exactly(method: str, tmp_path: Path) -> None:
    wanted = experiment(method, **ALL)
    perform(wanted, tmp_path / "alone")
    for number, moment in enumerate((5, 30, 42)):  # before, in and behind the late part of the first task

        def crash(seen: Moment, moment: int = moment) -> None:
            if seen.steps == moment:
                raise Crash

        folder = tmp_path / f"stopped {number}"
        with pytest.raises(Crash):
            perform(wanted, folder, watch=crash, checkpoint_seconds=0)
        perform(wanted, folder)
        assert same_run(tmp_path / "alone", folder)


def test_a_finished_run_has_its_velocities_when_it_is_loaded(tmp_path: Path) -> None:
    perform(experiment("derpp", **ALL), tmp_path)
    learner = load(tmp_path)
    moments = [value for name, value in learner.state().items() if name.startswith("optimizer/")]
    assert moments and all(value.any() for value in moments)
    learner.learn(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 3]))


# --- the late drop of the step size ------------------------------------------------------------------------------


def places(stream: Stream, epochs: int) -> list[Place]:
    return [place for place, _, _ in batch_schedule(stream, epochs, Place())]


@pytest.mark.parametrize("batch_size", [16, 17])
@pytest.mark.parametrize(("part", "epochs"), [(0.1, 3), (0.5, 1), (1.0, 2), (1e-9, 2)])
@pytest.mark.parametrize("joint", [False, True])
def test_the_step_size_drops_over_the_last_part_of_each_task(
    batch_size: int, part: float, epochs: int, joint: bool
) -> None:
    stream = build("seq-digits", batch_size=batch_size, tasks=3)
    stream = stream.joint() if joint else stream
    sizes, shown = StepSizes(0.25, part), places(stream, epochs)
    for task in range(stream.tasks):
        found = [sizes.factor_at(stream, epochs, place) for place in shown if place.task == task]
        late = max(1, round(part * len(found)))
        assert found == [1.0] * (len(found) - late) + [0.25] * late


def test_a_run_scales_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the velocities of momentum, which are whole, and the way that weights go, which is a part of them."""
    factors: list[float] = []
    learn = Learner.learn

    def watched(self: Learner, *batch: torch.Tensor) -> object:
        before = self.state()
        losses = learn(self, *batch)
        after, descent = self.state(), self.ready.optimizer
        assert isinstance(descent, Descent)
        velocity, name = after["optimizer/0/momentum_buffer"], "network/layer1.0.weight"
        way = (before[name] - after[name]).double().norm() / (0.01 * velocity.double().norm())
        factors.append(float(way))
        return losses

    monkeypatch.setattr(Learner, "learn", watched)
    perform(experiment("er", momentum="0.9", lr="0.01", lr_drop="0.1", lr_drop_part="0.25"), tmp_path)
    late = [factor < 0.5 for factor in factors]
    expected = [0.1 if low else 1.0 for low in late]
    assert factors == pytest.approx(expected, rel=1e-2)
    stream = build("seq-digits", tasks=2)
    sizes = StepSizes(0.1, 0.25)
    assert late == [sizes.factor_at(stream, 2, place) < 1 for place in places(stream, 2)]


def test_without_a_drop_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(running, "scale_steps", asked)
    perform(experiment("er"), tmp_path)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["seq-digits", "lr_drop=0"], "--set lr_drop=... multiplies the step size late in each task, above 0"),
        (["seq-digits", "lr_drop=2"], "--set lr_drop=... multiplies the step size late in each task, above 0"),
        (["seq-digits", "lr_drop_part=0"], "--set lr_drop_part=... is the last part of a task's steps"),
        (["digits-360", "lr_drop=0.1"], "--set lr_drop=0.1 needs tasks that end, and this stream has no boundaries"),
        (["seq-digits", "momentum=1"], "--set momentum=... is 0 (off) or the part of the last step that is kept"),
        (["seq-digits", "weight_decay=-1"], "--set weight_decay=... is 0 (off) or a positive number, not -1.0"),
    ],
)
def test_what_makes_no_sense_is_one_line(options: list[str], line: str, sncl: Sncl) -> None:
    done = sncl("train", "--stream", options[0], "--method", "er", "--device", "cpu", "--set", options[1])
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"error: {line}")


# --- other settings that were there ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sncl", "derpp", "sncl+"])
def test_more_may_be_replayed_than_a_batch_has(method: str) -> None:
    """A hundred and twenty-eight beside thirty-two; while fewer are remembered, all of them."""
    wanted = plan("seq-digits", method, memory=150, device="cpu", settings={"replay": "128", "batch_size": "32"})
    stream = build("seq-digits", batch_size=32)
    learner = make_learner(wanted, stream)
    for positions in stream.positions(0, 0)[:6]:
        learner.learn(*stream.batch(0, positions))
        assert learner.memory is not None
        for draw in learner._replay.draws():
            assert len(draw.slots) == len(set(draw.slots.tolist())) == min(128, len(learner.memory))
    assert len(learner.memory) == 150
