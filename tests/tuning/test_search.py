"""What is searched by default and on demand, and what cannot be searched."""

from pathlib import Path

import pytest
from command_line import Sncl
from studies import SHORT, short

from sncl.cli import trials
from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS
from sncl.tuning.sampling import distribution
from sncl.tuning.search import plan_search
from sncl.tuning.space import Choices, Range, parse_values, two_digits


def test_every_method_can_be_searched_around_its_defaults_wherever_it_applies() -> None:
    for stream in STREAMS:
        for method in METHODS:
            try:
                plan(stream, method, device="cpu")
            except SnclError:
                continue  # needs boundaries or the task
            search = plan_search(stream, method, device="cpu")
            default = search.default()
            assert "lr" in default
            for key, where in search.space.items():
                inside = default[key] in where.values if isinstance(where, Choices) else True
                assert inside and distribution(where)._contains(distribution(where).to_internal_repr(default[key]))


def test_a_part_that_is_off_is_not_searched_unless_asked_for() -> None:
    usual = {"lr", "alpha", "beta", "gamma", "ema"}
    assert set(plan_search("seq-cifar10", "sncl", device="cpu").space) == usual | {"start", "fill"}
    assert set(short(method="sncl", fixed={"gates": "off"}).space) == usual
    asked = plan_search("seq-cifar10", "sncl", device="cpu", fixed={"gates": "kl"}, searched={"eta": "0.001,0.0001"})
    assert asked.space["eta"] == Choices((0.001, 0.0001)) and "anneal" not in asked.space


def test_the_space_is_replaced_extended_and_fixed() -> None:
    assert list(short(method="er").space) == ["lr"]
    assert set(short(method="sncl").space) == {"lr", "alpha", "beta", "gamma", "start", "fill", "ema"}
    searched = {"lr": "0.05..0.123", "replay": "8..64:log", "admission": "reservoir"}
    space = short(method="sncl", fixed={"beta": "2"}, searched=searched).space
    assert "beta" not in space
    assert space["lr"] == Range(0.05, 0.12)  # two digits
    assert space["replay"] == Range(8, 64, True) and isinstance(space["replay"].low, int)
    assert space["admission"] == Choices(("reservoir", "loss-aware"))  # the default is among them
    assert parse_values("lr", str(space["lr"]), {"lr": 0.1}) == space["lr"]
    assert short(searched={"lr": "0.2..0.3"}).space["lr"] == Range(0.1, 0.3)


def test_numbers_have_two_significant_digits() -> None:
    assert [two_digits(value) for value in (0.12345, 1e-5 * 1.26, 7, 96.4)] == [0.12, 1.3e-05, 7, 96.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--validation", "0"], "between 0 and 1"),
        (["--validation", "nan"], "between 0 and 1"),
        (["--validation", "1"], "between 0 and 1"),
        (["--validation", "0.0001"], "none to test on"),
        (["--trials", "0"], "--trials is at least 1"),
        (["--seeds", "0"], "--seeds is at least 1"),
        (["--workers", "0"], "workers"),
        (["--memory", "100000"], "--memory 100000 is more than"),
        (["--tasks", "99"], "99 tasks"),
        (["--method", "nothing"], "no method 'nothing'"),
        (["--stream", "nothing"], "no stream 'nothing'"),
        (["--stream", "digits-360", "--method", "oewc"], "boundaries"),
        (["--set", "lr"], "--set takes KEY=VALUE"),
        (["--search", "lr"], "--search takes KEY="),
        (["--search", "nothing=1..2"], "no setting 'nothing'"),
        (["--search", "lr=2..1"], "smaller to a larger"),
        (["--search", "lr=0.1001..0.1002"], "smaller to a larger"),
        (["--search", "lr=0..1:log"], "begins above 0"),
        (["--search", "lr=1..2:cube"], "LOW..HIGH"),
        (["--search", "lr=1..2..3"], "LOW..HIGH"),
        (["--search", "lr=..1"], "takes a value like"),
        (["--search", "lr=nan,1"], "takes a value like"),
        (["--search", "lr=1..inf"], "takes a value like"),
        (["--search", "lr="], "takes a value like"),
        (["--search", "lr=-1,1"], "lr is a positive number"),
        (["--search", "batch_size=0..8"], "batch_size is a positive number"),
        (["--search", "replay=1.5,2"], "takes a value like"),
        (["--search", "split=5x2"], "--split 5x2"),
        (["--method", "sncl", "--search", "admission=a..b"], "no range"),
        (["--method", "sncl", "--search", "gates=nothing"], "is one of off, grow, kl"),
        (["--set", "lr=1", "--search", "lr=1,2"], "give one of them"),
        (["--method", "er", "--set", "lr=1"], "leave something to search"),
        (["--out", "settings.txt"], "--out is a .toml file"),
        (["--storage", "study.toml"], "--out is a .toml file"),
        (["--storage", "."], "directory"),
        (["--out", ".."], "directory"),
        (["--storage", "notes.txt"], "notes.txt is not a journal"),
        (["--storage", "notes.txt/study"], "notes.txt"),
    ],
)
def test_what_cannot_be_searched_is_one_line(sncl: Sncl, tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "notes.txt").write_text("something else")
    done = sncl(*SHORT, *options)
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
    assert words in done.err
    assert (tmp_path / "notes.txt").read_text() == "something else"
    assert not list(tmp_path.glob("*.jsonl"))


def test_without_optuna_the_command_says_what_to_install(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "find_spec", lambda name: None)
    assert sncl(*SHORT) == (2, "", "error: tuning needs optuna: pip install optuna\n")
