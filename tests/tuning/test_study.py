"""A study scores on validation data only, starts with the defaults and prunes what is hopeless."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from command_line import Sncl
from studies import SHORT, short, states

from sncl.errors import SnclError
from sncl.runs.result import Result
from sncl.streams import build
from sncl.tuning import study
from sncl.tuning.sampling import LatestMedianPruner
from sncl.tuning.study import Study, StudyJob


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


def test_trials_on_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are trained: their scores could not be compared."""
    job = StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 1)
    Study(job).work(lambda standing: None)
    load = build.load

    def turned(*arguments: Any) -> Any:
        source = load(*arguments)
        return replace(source, train_y=(source.train_y + 1) % 10)

    monkeypatch.setattr(build, "load", turned)
    more = Study(replace(job, trials=2))
    with pytest.raises(SnclError, match="the data of seq-digits found here are not those that this run is about"):
        more.work(lambda standing: None)
    assert [trial.state for trial in more.trials()] == ["complete", "failed", "waiting"]
    monkeypatch.setattr(build, "load", load)
    more.work(lambda standing: None)
    assert sum(trial.state == "complete" for trial in more.trials()) == 2


def test_an_edited_score_is_noticed(tmp_path: Path) -> None:
    job = StudyJob(short(), tmp_path / "study.journal", tmp_path / "study.toml", 1)
    Study(job).work(lambda standing: None)
    (score,) = Study(job).trials()[0].scores
    text = job.storage.read_text()
    job.storage.write_text(re.sub(r'("scores": ?\[)[0-9.]+', r"\g<1>100.5", text))
    assert job.storage.read_text() != text
    with pytest.raises(
        SnclError, match=r"study\.journal says of trial 0 is damaged: it was changed .*; choose another"
    ):
        Study(job).trials()
    job.storage.write_text(re.sub(r', ?"crc32": ?"[0-9a-f]+"', "", text))  # as early versions wrote it
    assert job.storage.read_text() != text
    assert Study(job).trials()[0].scores == [score]
