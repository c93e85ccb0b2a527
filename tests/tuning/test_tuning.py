"""Choosing settings: on validation data only, in a study that survives its processes and is shared by them."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from command_line import Sncl

from sncl.cli import trials
from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.runs.plan import plan
from sncl.runs.result import Result
from sncl.streams import build
from sncl.streams.benchmarks import STREAMS
from sncl.training.parallel import run_in_threads
from sncl.tuning import study
from sncl.tuning.files import settings_file
from sncl.tuning.sampling import LatestMedianPruner, distribution
from sncl.tuning.search import Search, plan_search
from sncl.tuning.space import Choices, Range, parse_values, two_digits
from sncl.tuning.study import Standing, Study, StudyJob
from sncl.tuning.trial import Trial

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["tune", "--stream", "seq-digits", "--method", "derpp", "--memory", "30", "--tasks", "1", "--epochs", "1"]
SHORT += ["--seeds", "1", "--workers", "1", "--device", "cpu", "--storage", "study.journal"]

# The command, in a process that gets stuck in one of its trials; it says so and waits to be killed.
STUCK = """
import sys, time
from sncl import cli
from sncl.tuning import study

perform, where = study.perform, sys.argv.pop(1)

def stuck(experiment, folder, *rest):
    if folder.parent.name == where:
        folder.mkdir(parents=True)
        print("stuck", flush=True)
        time.sleep(100)
    return perform(experiment, folder, *rest)

study.perform = stuck
cli.main()
"""


def start(folder: Path, stuck_in: str, *arguments: str) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", STUCK, stuck_in, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def short(**changes: Any) -> Search:
    options = {"memory": 30, "tasks": 1, "epochs": 1, "seeds": 1, "device": "cpu"} | changes
    return plan_search("seq-digits", options.pop("method", "derpp"), **options)


def states(trials: list[dict[str, Any]]) -> list[str]:
    return [trial["state"] for trial in trials]


# --- what is searched ----------------------------------------------------------------------------------------------


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
    assert set(plan_search("seq-cifar10", "sncl", device="cpu").space) == {"lr", "alpha", "beta", "gamma", "ema"}
    assert not {"eta", "anneal"} & set(short(method="sncl", fixed={"gates": "off"}).space)
    asked = plan_search("seq-cifar10", "sncl", device="cpu", fixed={"gates": "kl"}, searched={"eta": "0.001,0.0001"})
    assert asked.space["eta"] == Choices((0.001, 0.0001)) and "anneal" not in asked.space


def test_the_space_is_replaced_extended_and_fixed() -> None:
    assert list(short(method="er").space) == ["lr"]
    assert set(short(method="sncl").space) == {"lr", "alpha", "beta", "gamma", "eta", "anneal", "ema"}
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
        (["--method", "sncl", "--search", "gates=nothing"], "is one of off, kl"),
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
    assert sncl(*SHORT) == (2, "", "error: tuning needs optuna: pip install sncl[tune]\n")


# --- a study -------------------------------------------------------------------------------------------------------


def test_the_defaults_come_first_and_the_chosen_settings_can_be_read_back(sncl: Sncl, tmp_path: Path) -> None:
    command = [*SHORT, "--seeds", "2", "--trials", "4", "--set", "replay=20"]
    found = sncl(*command, "--json").json()
    first, *others = found["trials"]
    assert first["default"] and not any(trial["default"] for trial in others)
    shipped = plan("seq-digits", "derpp", memory=30).settings
    assert first["params"] == {key: shipped[key] for key in ("lr", "logits", "labels")}
    assert states(found["trials"]) == ["complete"] * 4
    for trial in found["trials"]:
        assert trial["score"] == pytest.approx(sum(trial["scores"]) / 2) and len(trial["scores"]) == 2
        for value in trial["params"].values():
            assert value == float(f"{value:.2g}")
    chosen = found["chosen"]
    assert chosen["score"] == max(trial["score"] for trial in found["trials"]) >= first["score"]
    assert [json.loads(line) for line in (tmp_path / "study.jsonl").read_text().splitlines()] == found["trials"]

    text = (tmp_path / "study.toml").read_text()
    assert tomllib.loads(text) == {"seq-digits": {"derpp": {"30": chosen["settings"]}}}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert "Trials: 4 complete, 0 pruned, 0 failed. Seeds: 0 to 1." in comments[1]
    assert "shipped defaults: " in comments[2] and " ± " in comments[2]
    assert "sncl tune --stream seq-digits --method derpp --memory 30 --trials 4 --seeds 2" in comments[3]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("study.journal", "study.journal.lock", "study.toml", "study.jsonl")
    }

    train = ["train", "--stream", "seq-digits", "--method", "derpp", "--memory", "30", "--tasks", "1", "--epochs", "1"]
    train += ["--settings", "study.toml", "--validation", "0.1", "--json"]
    result = sncl(*train, "--out", "run").json()
    assert result["manifest"]["settings"] == shipped | chosen["params"] | {"replay": 20}
    assert result["accuracy"]["class_il"] == chosen["scores"][0]  # what is written is what was run
    over = sncl(*train, "--out", "over", "--set", "lr=0.07").json()
    assert over["manifest"]["settings"] == result["manifest"]["settings"] | {"lr": 0.07}

    table = sncl(*command)  # finished: it only shows
    assert (table.code, table.err.splitlines()[0]) == (0, "trials: 4 complete, 0 pruned, 0 failed")
    assert "(defaults)" in table.out and len(table.out.splitlines()) == 5
    more = sncl(*command, "--trials", "5", "--json").json()
    assert more["trials"][:4] == found["trials"] and len(more["trials"]) == 5


def test_settings_that_do_not_fit_are_one_line(sncl: Sncl, tmp_path: Path) -> None:
    train = ["train", "--stream", "seq-digits", "--method", "er", "--settings", "file.toml"]
    file = tmp_path / "file.toml"
    for text, words in [
        ("", "no entry [seq-digits] er.200"),
        ("seq-digits = 3", "no entry"),
        ("[seq-digits]\ner.30 = { lr = 1.0 }", "no entry [seq-digits] er.200"),
        ("[seq-digits]\ner.any = { nothing = 1.0 }", "no setting 'nothing'"),
        ("[seq-digits]\ner.200 = { lr = 'fast' }", "takes a value like"),
        ("[seq-digits]\ner.200 = { lr = true }", "lr is a number or a text"),
        ("[seq-digits]\ner.200 = { lr = [1.0] }", "lr is a number or a text"),
        ("[seq-digits", "cannot read the settings"),
        ("\x00", "cannot read the settings"),
    ]:
        file.write_text(text)
        done = sncl(*train)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert words in done.err and "file.toml" in done.err
    file.unlink()
    assert "No such file" in sncl(*train).err


def test_what_is_written_is_toml_whatever_is_in_it() -> None:
    search = short(method="sncl", fixed={"features": 'a"\n\x7f\\µ,#'})
    trial = Trial(0, "complete", search.default(), [50.0], 1.0, None, True)
    row = tomllib.loads(settings_file(search, [trial], 3, trial))["seq-digits"]["sncl"]["30"]
    assert row == search.row(search.default())
    without_memory = short(method="sgd")
    text = settings_file(without_memory, [trial], 3, trial._replace(params=without_memory.default()))
    assert tomllib.loads(text)["seq-digits"] == {"sgd": {"any": {"lr": 0.1}}}


def test_test_data_have_no_say(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Result] = []
    load, perform = build.load, study.perform

    def poisoned(*arguments: Any) -> Any:
        source = load(*arguments)
        return replace(source, test_x=source.test_x[:0], test_y=source.test_y[:0])  # to be tested on: an error

    def noted(*arguments: Any) -> Result:
        results.append(perform(*arguments))
        return results[-1]

    monkeypatch.setattr(study, "perform", noted)
    usual = sncl(*SHORT, "--trials", "2", "--json").json()["trials"]
    monkeypatch.setattr(build, "load", poisoned)
    without = sncl(*SHORT, "--trials", "2", "--storage", "other.journal", "--json").json()["trials"]
    assert [trial["scores"] for trial in without] == [trial["scores"] for trial in usual]
    assert [result.scored_on for result in results] == ["validation"] * 4
    assert [result.manifest.validation for result in results] == [0.1] * 4


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "replay=20"],
        ["--validation", "0.2"],
        ["--seeds", "2"],
        ["--epochs", "2"],
        ["--tasks", "2"],
        ["--memory", "31"],
        ["--search", "lr=0.01,0.5"],
        ["--search", "replay=10,20"],
        ["--method", "der"],
        ["protocol"],
    ],
)
def test_a_study_of_something_else_is_refused(
    sncl: Sncl, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Study(StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 1))
    if options == ["protocol"]:
        monkeypatch.setattr("sncl.tuning.search.PROTOCOL", "1999")
    done = sncl(*SHORT, *(options if options != ["protocol"] else []))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "study.journal holds another study: " in done.err


def test_a_trial_that_diverges_does_not_end_the_study(sncl: Sncl, tmp_path: Path) -> None:
    found = sncl(*SHORT, "--search", "lr=1e30,1e31", "--trials", "6", "--json").json()["trials"]
    assert len(found) == 6 and set(states(found[1:])) <= {"complete", "pruned"}
    broken = [trial for trial in found if trial["params"]["lr"] > 1]
    assert broken
    for trial in broken:
        assert trial["state"] == "pruned" and "use a smaller `lr`" in trial["reason"] and trial["score"] is None
    assert tomllib.loads((tmp_path / "study.toml").read_text())["seq-digits"]["derpp"]["30"]["lr"] == 0.1


def test_a_study_in_which_all_diverge_says_so(sncl: Sncl) -> None:
    done = sncl(*SHORT, "--set", "lr=1e30", "--trials", "2")
    assert (done.code, done.err) == (2, "error: no trial was complete; study.jsonl says why\n")


def test_the_same_settings_are_not_run_twice(sncl: Sncl) -> None:
    found = sncl(*SHORT, "--method", "er", "--search", "lr=0.1,0.2", "--trials", "5", "--json").json()["trials"]
    again = [trial for trial in found if trial["reason"]]
    assert len(again) == 3 and {trial["reason"] for trial in again} <= {"the same as trial 0", "the same as trial 1"}
    assert len({trial["score"] for trial in found}) <= 2


def test_hopeless_trials_are_pruned_by_their_latest_value() -> None:
    """Accuracy falls from task to task, so the best value so far would never be below a median of later ones."""
    made = optuna.create_study(direction="maximize", pruner=LatestMedianPruner(5, 1))
    for number in range(5):
        trial = made.ask()
        for task, value in enumerate((99.0, 80.0 + number)):
            trial.report(value, task)
        made.tell(trial, value)
    for first, second, pruned in ((99.9, 81.9, True), (50.0, 82.1, False)):
        trial = made.ask()
        trial.report(first, 0)
        assert not trial.should_prune()  # the first task says little
        trial.report(second, 1)
        assert bool(trial.should_prune()) is pruned


def test_a_trial_is_pruned_in_its_first_seed_and_the_defaults_never(tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[tuple[str, str]] = []
    perform = study.perform

    def noted(experiment: Any, folder: Path, *rest: Any) -> Any:
        seen.append((folder.parent.name, folder.name))
        return perform(experiment, folder, *rest)

    monkeypatch.setattr(study, "perform", noted)
    monkeypatch.setattr(LatestMedianPruner, "prune", lambda self, study, trial: trial.last_step == 0)
    made = Study(StudyJob(short(seeds=2, tasks=2), tmp_path / "study.journal", tmp_path / "study.toml", 2))
    made.work(lambda standing: None)
    assert [trial.state for trial in made.trials()] == ["complete", "pruned"]
    assert made.trials()[1].reason == "below the median of the other trials after task 1"
    assert seen == [("trial-0", "seed-0"), ("trial-0", "seed-1"), ("trial-1", "seed-0")]


# --- processes that end --------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_finished(sncl: Sncl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pressed(experiment: Any, folder: Path, *rest: Any) -> Any:
        if folder.parent.name == "trial-1":
            raise KeyboardInterrupt
        return perform(experiment, folder, *rest)

    perform = study.perform
    with monkeypatch.context() as patch:
        patch.setattr(study, "perform", pressed)
        done = sncl(*SHORT, "--trials", "3")
    message = "stopped; finished trials are kept in study.journal, and the same command goes on\n"
    assert done == (130, "", message)
    assert "1 complete, 0 pruned, 1 failed" in (tmp_path / "study.toml").read_text()
    found = sncl(*SHORT, "--trials", "3", "--json").json()["trials"]
    assert states(found) == ["complete", "failed", "complete", "complete"]
    assert found[2]["params"] == found[1]["params"]


def test_a_study_goes_on_after_sigkill(sncl: Sncl, tmp_path: Path) -> None:
    command = [*SHORT, "--trials", "4"]
    process = start(tmp_path, "trial-2", *command)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n", process.communicate()
        beside = Study(StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 3))
        assert beside.take() is None  # it still works on the third, which is the last that is wanted here
        assert (tmp_path / "study.journal.running" / "trial-2" / "seed-0").is_dir()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    with (tmp_path / "study.journal").open("a") as journal:
        journal.write('{"op_code":')  # and a line that it could not write to its end
    found = sncl(*command, "--json").json()["trials"]
    assert states(found) == ["complete", "complete", "failed", "complete", "complete"]
    assert found[2]["reason"] == "its process was killed"
    assert found[3]["params"] == found[2]["params"]
    assert not (tmp_path / "study.journal.running").exists()
    assert "4 complete, 0 pruned, 1 failed" in (tmp_path / "study.toml").read_text()


def test_defaults_that_were_killed_are_still_the_defaults_and_not_tried_for_ever(tmp_path: Path) -> None:
    job = StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 3)
    for _ in range(study.ATTEMPTS):
        killed = Study(job)
        trial = killed.take()
        assert trial is not None and trial.params == job.search.default() and trial.user_attrs["default"]
        killed.own.release()  # as the system does
    other = Study(job).take()
    assert other is not None and not other.user_attrs.get("default")
    assert [trial.state for trial in Study(job).trials()] == ["failed"] * study.ATTEMPTS + ["running"]


def test_two_processes_share_a_study(tmp_path: Path) -> None:
    process = start(tmp_path, "none", *SHORT, "--trials", "16")
    try:
        job = StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 16)
        standings: list[Standing] = []
        while not (tmp_path / "study.toml").exists():  # the other one has begun
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        Study(job).work(standings.append)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "trials: " in err
    trials = Study(job).trials()
    assert len(trials) == standings[-1].finished == 16  # none was run twice and none is left
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
    lines = [json.loads(line) for line in (tmp_path / "study.journal").read_text().splitlines()]
    finishers = {line["worker_id"] for line in lines if line["op_code"] == 6 and line["state"] == 1}
    assert len(finishers) == 2
    assert len((tmp_path / "study.jsonl").read_text().splitlines()) == 16
    assert len(out.splitlines()) == 11


def test_threads_share_a_study(tmp_path: Path) -> None:
    """As on a GPU."""
    job = StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 6)
    run_in_threads(study.take_trials, [job] * 3, 3)
    assert [trial.state for trial in Study(job).close()] == ["complete"] * 6


@pytest.mark.slow
def test_workers_are_processes_and_one_that_is_killed_is_replaced_by_the_other(tmp_path: Path) -> None:
    process = start(tmp_path, "none", *SHORT, "--trials", "40", "--workers", "2")
    killed = False
    try:
        while process.poll() is None:
            time.sleep(0.02)
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            begun = list((tmp_path / "study.journal.running").glob("trial-*.lock"))
            if not killed and len(begun) == 2:
                os.kill(int(workers[-1]), signal.SIGKILL)
                killed = True
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert killed and process.returncode == 0, err
    trials = Study(StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 40)).trials()
    assert sum(trial.state in ("complete", "pruned") for trial in trials) == 40
