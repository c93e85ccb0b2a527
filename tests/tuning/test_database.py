"""A study in a PostgreSQL server, which processes share, and whose password is nowhere."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Sncl
from postgres import PASSWORD, QUOTED, Server, postgres
from studies import short

from sncl.errors import SnclError
from sncl.tuning.address import Database, parse_address

pytest.importorskip("psycopg")

from sncl.tuning import database
from sncl.tuning.study import Study, StudyJob

ROOT = Path(__file__).resolve().parents[2]
TUNE = ["tune", "--stream", "seq-digits", "--method", "derpp", "--memory", "30", "--tasks", "1", "--epochs", "1"]
TUNE += ["--seeds", "1", "--workers", "1", "--device", "cpu"]

# A process that takes a trial and waits to be killed.
TAKE = """
import sys, time
from pathlib import Path
from studies import short
from sncl.tuning.address import Database
from sncl.tuning.study import Study, StudyJob

study = Study(StudyJob(short(), Database(sys.argv[1], sys.argv[2]), Path("taken.toml"), 3))
print(study.take().number, flush=True)
time.sleep(100)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "")  # is put back as it was, whatever a test makes of it


def start(folder: Path, *arguments: str, password: str = "") -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths, "PGPASSWORD": password},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def job(server: Server, name: str, folder: Path, trials: int) -> StudyJob:
    return StudyJob(short(), Database(server.address, name), folder / f"{name}.toml", trials)


def test_two_processes_share_a_study_and_nobody_sees_the_password(server: Server, tmp_path: Path, sncl: Sncl) -> None:
    command = [*TUNE, "--trials", "6", "--storage", server.with_password]
    other = tmp_path / "other"  # a machine of its own: no folder is shared
    other.mkdir()
    process = start(other, "-m", "sncl.cli", *command)
    try:
        os.environ["PGPASSWORD"] = PASSWORD
        name = "tune-seq-digits-derpp-30"
        while not (other / "runs" / f"{name}.toml").exists():  # the other one has begun
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        study = Study(job(server, name, tmp_path, 6))
        mine = []
        while study.standing().finished < 6:
            trial = study.take()
            if trial is not None:
                mine.append(trial.number)
                study.perform(trial, lambda name, moment: None)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    trials = study.trials()
    assert [trial.number for trial in trials] == list(range(6))  # none was run twice and none is left
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
    assert 0 < len(mine) < 6
    text = out + err + "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert PASSWORD not in text and QUOTED not in text
    again = sncl(*command, "--json").json()
    assert [trial["number"] for trial in again["trials"]] == list(range(6))


def test_a_trial_of_a_killed_process_is_tried_again(server: Server, tmp_path: Path) -> None:
    os.environ["PGPASSWORD"] = PASSWORD
    process = start(tmp_path, "-c", TAKE, server.address, "killed", password=PASSWORD)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n", process.communicate()
        study = Study(job(server, "killed", tmp_path, 1))
        assert study.take() is None  # it is worked on
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    until = time.monotonic() + 20
    while (trial := study.take()) is None and time.monotonic() < until:
        time.sleep(0.05)  # until the server has noticed
    assert trial is not None and trial.user_attrs["attempt"] == 2
    assert trial.params == study.search.default()
    assert [each.state for each in study.trials()] == ["failed", "running"]


def test_a_server_that_is_started_again_loses_nothing(server: Server, tmp_path: Path) -> None:
    os.environ["PGPASSWORD"] = PASSWORD
    study = Study(job(server, "restarted", tmp_path, 2))
    trial = study.take()
    assert trial is not None
    server.control("-m", "fast", "restart")
    study.perform(trial, lambda name, moment: None)
    beside = Study(job(server, "restarted", tmp_path, 2))
    assert [each.state for each in beside.trials()] == ["complete"]
    study.work(lambda standing: None)
    assert beside.standing().finished == 2


def test_a_result_that_comes_too_late_is_dropped(server: Server, tmp_path: Path) -> None:
    """The server lost sight of a process that lived on; another one has taken its trial meanwhile."""
    os.environ["PGPASSWORD"] = PASSWORD
    study, other = (Study(job(server, "late", tmp_path, 1)) for _ in range(2))
    trial = study.take()
    assert trial is not None
    study.place.connection.close()  # type: ignore[union-attr]
    again = other.take()
    assert again is not None and again.number == 1
    study.perform(trial, lambda name, moment: None)
    other.perform(again, lambda name, moment: None)
    assert [each.state for each in other.trials()] == ["failed", "complete"]


def test_errors_are_one_line_without_the_password(server: Server, sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.0)
    wrong = server.with_password.replace(QUOTED, "wr0ngword")
    code, out, err = sncl(*TUNE, "--storage", wrong)
    assert (code, out) == (2, "") and err.count("\n") == 1 and "Traceback" not in err
    assert "the database of --storage does not answer" in err and "wr0ngword" not in err
    code, _, err = sncl(*TUNE, "--storage", "postgresql://sncl:wr0ngword@127.0.0.1:1/none")
    assert code == 2 and err.count("\n") == 1 and "wr0ngword" not in err
    code, _, err = sncl(*TUNE, "--storage", "mysql://sncl:wr0ngword@127.0.0.1/none")
    assert code == 2 and "wr0ngword" not in err
    assert err == "error: --storage is a file or postgresql://USER@HOST:PORT/DATABASE, not an address of 'mysql'\n"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("postgresql://host/base", "postgresql://host/base"),
        ("postgres://me:p%40ss@host:5433/base", "postgresql://me@host:5433/base"),
        ("postgresql:///base?host=/run/sockets&password=p@ss", "postgresql:///base?host=/run/sockets"),
        ("postgresql://me:p%40ss@[::1]/base?sslmode=require", "postgresql://me@[::1]/base?sslmode=require"),
    ],
)
def test_an_address_without_its_password(given: str, address: str) -> None:
    found = parse_address(given, "study")
    assert found == Database(address, "study")
    assert os.environ["PGPASSWORD"] == ("p@ss" if "ss" in given.partition("://")[2].replace("sslmode", "") else "")
    assert re.sub(r"^postgresql", "postgresql+psycopg", address) == found.for_optuna()


@pytest.mark.parametrize("given", ["postgresql://host:port/base", "postgresql://host", "sqlite:///file.db"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(SnclError, match="`storage`"):
        parse_address(given, "study")
