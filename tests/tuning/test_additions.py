"""Tuning of methods with additions: the same settings of training are searched for all of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from command_line import Sncl

from sncl.methods.table import METHODS
from sncl.runs.plan import plan
from sncl.runs.settings import read_settings
from sncl.tuning.search import plan_search
from sncl.tuning.space import ADDITIONS, Choices, Space

PLUS = [name for name, entry in METHODS.items() if entry.plain]


def space(method: str, stream: str = "seq-cifar10", memory: int = 200) -> Space:
    return plan_search(stream, method, memory=memory, device="cpu").space


@pytest.mark.parametrize("memory", [200, 500, 5120])
@pytest.mark.parametrize("stream", ["seq-cifar10", "seq-tinyimagenet"])
@pytest.mark.parametrize("method", PLUS)
def test_training_is_searched_alike(method: str, stream: str, memory: int) -> None:
    found, reference = space(method, stream, memory), space("sncl+", stream, memory)
    assert {key: found[key] for key in ADDITIONS} == {key: reference[key] for key in ADDITIONS}
    assert found["augment"] == Choices(("crop-flip", "strong")) and found["momentum"] == Choices((0.0, 0.9))
    own = set(found) - set(ADDITIONS)
    of_plain = set(space(METHODS[method].plain, stream, memory)) - set(ADDITIONS)
    assert own == of_plain | ({"ace"} if "ace" in METHODS[method].settings else set())


def test_plain_methods_are_searched_as_before() -> None:
    assert set(space("sncl")) == {"lr", "alpha", "beta", "gamma", "start", "fill", "ema"}
    assert set(space("derpp")) == {"lr", "logits", "labels"} and set(space("er-ace")) == {"lr"}


def test_images_that_are_not_augmented_have_no_choice() -> None:
    assert "augment" not in space("sncl+", "seq-digits") and "momentum" in space("sncl+", "seq-digits")


def test_neutral_values_are_the_first_trial_of_any_method_that_is_asked_to_search_them() -> None:
    asked = {"momentum": "0.9", "weight_decay": "0.0001..0.001", "clip": "2", "lr_drop": "0.1,1", "augment": "strong"}
    search = plan_search("seq-cifar10", "derpp", device="cpu", searched=asked | {"ace": "1"})
    default = search.default()
    neutral = {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0, "lr_drop": 1.0, "augment": "crop-flip", "ace": 0}
    assert {key: default[key] for key in neutral} == neutral
    assert (
        search.experiment(default, 0).identity()
        == plan("seq-cifar10", "derpp", device="cpu", validation=0.1).identity()
    )
    chosen = search.experiment(default | {"ace": 1, "augment": "strong"}, 0).settings
    assert (chosen["ace"], chosen["augment"]) == (1, "strong") and "momentum" not in chosen


def test_what_was_chosen_is_written_and_read_again(sncl: Sncl, tmp_path: Path) -> None:
    command = ["tune", "--stream", "seq-digits", "--method", "sncl+", "--memory", "30", "--tasks", "2", "--epochs", "1"]
    more = ["--trials", "3", "--seeds", "1", "--workers", "1", "--device", "cpu", "--storage", "study.journal"]
    done = sncl(*command, *more)
    assert done.code == 0, done.err
    row = tomllib.loads((tmp_path / "study.toml").read_text())["seq-digits"]["sncl+"]["30"]
    assert {"momentum", "weight_decay", "replay", "ace", "lr", "alpha"} <= row.keys()
    again = plan(
        "seq-digits", "sncl+", memory=30, settings=read_settings(tmp_path / "study.toml", "seq-digits", "sncl+", 30)
    )
    for key, value in row.items():
        assert again.settings.get(key, 0.0) == value
