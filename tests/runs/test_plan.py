"""From names to a complete experiment: what is filled in, what tells experiments apart, and what is refused."""

from pathlib import Path

import pytest
from short_runs import short
from user_files import read_data, save_arrays

from sncl.errors import SnclError
from sncl.methods.table import METHODS, make
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS
from sncl.training.parallel import cores


def test_what_moves_the_last_bits_belongs_to_the_experiment() -> None:
    usual = plan("seq-digits", "er", device="cpu")
    assert (usual.precision, usual.engine, usual.threads) == ("float32", "eager", 1)
    other = plan("seq-digits", "er", device="cpu", threads=2)
    assert other.threads == 2 and other.identity() != usual.identity() and other.name() != usual.name()
    assert plan("seq-cifar10", "er", device="cpu").threads == cores()


def test_a_plan_fills_in_what_was_not_said() -> None:
    experiment = plan("seq-digits", "derpp", device="cpu")
    assert (experiment.memory, experiment.seed, experiment.epochs, experiment.tasks) == (200, 0, 5, 5)
    assert set(experiment.settings) == {"lr", "batch_size", "replay", "ema", "width", "split", "logits", "labels"}
    assert (experiment.settings["batch_size"], experiment.settings["width"], experiment.settings["split"]) == (
        16,
        100,
        "5x2",
    )
    assert all(value for key, value in experiment.settings.items() if key != "ema")


def test_neurons_are_opened_within_the_length_of_the_run() -> None:
    """What is shipped is for the stream's usual epochs; what is asked for is taken as it is."""
    fills = {epochs: plan("seq-digits", "sncl", epochs=epochs, device="cpu").settings["fill"] for epochs in (1, 5, 50)}
    assert fills == {1: 0.06, 5: 0.3, 50: 3.0}
    assert plan("seq-digits", "sncl", device="cpu").settings["fill"] == 0.3
    assert plan("seq-digits", "sncl", epochs=1, device="cpu", settings={"fill": "0.3"}).settings["fill"] == 0.3


def test_clipping_is_a_setting_of_user_data_and_neutral_elsewhere(tmp_path: Path) -> None:
    loaded = read_data(save_arrays(tmp_path / "a.npz"))
    ours, off = (plan("npz:a", "er", user_data=loaded.user_data, settings=given) for given in ({}, {"clip": "0"}))
    assert ours.settings["clip"] == 2 and "clip" not in off.settings
    assert plan("seq-digits", "er", settings={"clip": "0"}).identity() == plan("seq-digits", "er").identity()
    assert plan("seq-digits", "er", settings={"clip": "3"}).settings["clip"] == 3
    with pytest.raises(SnclError, match="`clip` is 0"):
        plan("seq-digits", "er", settings={"clip": "0.5"})


def test_settings_have_the_type_of_their_default() -> None:
    given = {"lr": "1", "batch_size": "7", "split": "2x3", "labels": "1e-3"}
    experiment = plan("seq-digits", "derpp", settings=given, device="cpu")
    assert {key: experiment.settings[key] for key in given} == {
        "lr": 1.0,
        "batch_size": 7,
        "split": "2x3",
        "labels": 0.001,
    }
    assert isinstance(experiment.settings["lr"], float)
    assert experiment.tasks == 2


@pytest.mark.parametrize("method", ["sgd", "joint"])
def test_a_method_without_memory_has_none(method: str) -> None:
    assert plan("seq-digits", method, memory=500, device="cpu").memory == 0


def test_every_difference_gives_another_folder() -> None:
    experiments = [
        short(),
        short("perm-digits"),
        short(method="der"),
        short(memory=31),
        short(seed=1),
        short(epochs=2),
        short(tasks=3),
        short(validation=0.1),
        short(settings={"lr": "0.05"}),
        short(settings={"width": "64"}),
    ]
    assert len({experiment.name() for experiment in experiments}) == len(experiments)
    assert short().name() == short().name()


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "fast", ""])
def test_a_setting_is_a_finite_number(text: str) -> None:
    for key in ("lr", "logits"):
        with pytest.raises(SnclError, match=f"`settings` {key}= takes a value like"):
            short(method="der", settings={key: text})


@pytest.mark.parametrize("split", ["abc", "x2", "0x2", "2x", "5x9"])
def test_a_split_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path, split: str) -> None:
    experiment = plan("seq-digits", "sgd", settings={"split": split}, device="cpu")
    with pytest.raises(SnclError):
        perform(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_planned_on_every_stream_it_suits(method: str) -> None:
    made = make(method)
    for stream, benchmark in STREAMS.items():
        if (made.needs_boundaries and benchmark.kind == "360") or (made.needs_task_at_test and benchmark.kind != "seq"):
            with pytest.raises(SnclError, match=f"{method} must be told"):
                plan(stream, method, device="cpu")
        else:
            experiment = plan(stream, method, device="cpu")
            assert (experiment.epochs, experiment.tasks) == (benchmark.epochs, benchmark.tasks)
