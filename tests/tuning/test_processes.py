"""A study survives its processes and is shared by them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl
from studies import SHORT, short, states

from sncl.training.parallel import run_in_threads
from sncl.tuning import study
from sncl.tuning.study import Standing, Study, StudyJob

ROOT = Path(__file__).resolve().parents[2]

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
