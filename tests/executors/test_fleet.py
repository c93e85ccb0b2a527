"""Which executor is meant, what a machine refuses, and jobs of Slurm by the executor that stands in for it."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl

from sncl.errors import Busy, SnclError
from sncl.executors import fleet, orders
from sncl.executors.fleet import Calls, Resources, choose_fleet
from sncl.executors.on_slurm import LOGS, Heard, OnSlurm, minutes, plain
from sncl.live.jobs import KINDS
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_json
from sncl.training.events import Evaluation, Moment

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["train", "--stream", "seq-digits", "--method", "er", "--memory", "30", "--tasks", "1", "--epochs", "1"]
TRAIN += ["--device", "cpu", "--seeds", "2", "--out"]


@pytest.mark.parametrize(
    ("on", "package"), [("ray", "ray"), ("ray://head:10001", "ray[client]"), ("slurm", "submitit")]
)
def test_a_missing_package_is_one_line(on: str, package: str, sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"ray[client]": "grpc"}.get(package, package)
    monkeypatch.setattr(fleet, "find_spec", lambda name: None if name == module else True)
    told = f"error: --on {on} needs {package}: pip install {package}\n"
    assert sncl(*TRAIN, "runs", "--on", on) == (2, "", told)


def test_names_that_are_none(sncl: Sncl) -> None:
    told = "error: --on is local, ray, ray://HOST:PORT or slurm, not 'moon'\n"
    assert sncl(*TRAIN, "runs", "--on", "moon") == (2, "", told)
    assert sncl(*TRAIN, "runs", "--on", "ray://").code == 2
    assert sncl(*TRAIN, "runs", "--slurm", "time=5") == (
        2,
        "",
        "error: options of Slurm need --on slurm, not 'local'\n",
    )
    assert choose_fleet("local") is None


# --- what a machine refuses -----------------------------------------------------------------------------------------


def doubled(job: int, report: Any) -> tuple[int, str, str | None]:
    report(job)
    return 2 * job, os.getcwd(), os.environ.get("SNCL_DATA")


def outcome(order: orders.Order) -> Any:
    return orders.carry_out(order, lambda value: None)


def test_an_order_is_carried_out_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SNCL_DATA", "data")
    monkeypatch.setenv("PGPASSWORD", "secret")
    calls = Calls(doubled, [3], tmp_path / "runs", Resources())
    with orders.orders(calls) as made:
        (tmp_path / "else").mkdir()
        monkeypatch.chdir(tmp_path / "else")  # where a cluster starts its workers
        assert outcome(made[0]) == (True, (6, str(tmp_path), str(tmp_path / "data")))
        assert b"secret" in pickle.dumps(made[0])
    assert not list((tmp_path / "runs").iterdir())
    with orders.orders(calls, secret=False) as made:
        assert b"secret" not in pickle.dumps(made[0])  # it is written to a file


def test_a_machine_without_the_folder_the_data_or_the_program(tmp_path: Path) -> None:
    with orders.orders(Calls(doubled, [3], tmp_path / "runs", Resources())) as made:
        for changed, told in (
            ({"sign": tmp_path / "none" / ".shared-0"}, f"does not see the folder {tmp_path / 'none'}; "),
            ({"here": tmp_path / "none"}, f"has no folder {tmp_path / 'none'}; call from a folder"),
            ({"environment": {"SNCL_DATA": "/nowhere"}}, "has no folder /nowhere, which SNCL_DATA names"),
            ({"version": "0.0"}, "and 0.0 asks; install the same everywhere"),
        ):
            well, error = outcome(replace(made[0], **changed))  # type: ignore[arg-type]
            assert not well and isinstance(error, SnclError) and told in str(error)


def test_a_folder_that_a_lost_process_still_holds_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PAUSE", 0.0)
    tried = []

    def function(job: int, report: Any) -> int:
        tried.append(job)
        if len(tried) < 3:
            raise Busy("another process is running")
        return job

    assert orders.patiently(function, 7, print) == 7
    monkeypatch.setattr(orders, "BUSY_SECONDS", -1.0)
    tried.clear()
    with pytest.raises(Busy):
        orders.patiently(function, 7, print)


# --- Slurm ----------------------------------------------------------------------------------------------------------


def test_jobs_of_slurm_give_the_numbers_of_a_local_run(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    command = [*TRAIN, "there", "--on", "slurm", "--slurm", "cluster=local", "--slurm", "time=10"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "sncl.cli", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"logs: {tmp_path / 'there' / LOGS}" in done.stderr
    for seed in range(2):
        experiment = plan("seq-digits", "er", memory=30, tasks=1, epochs=1, device="cpu", seed=seed)
        perform(experiment, tmp_path / "here" / f"seed-{seed}")
        found = [read_json(tmp_path / where / f"seed-{seed}" / "result.json") for where in ("here", "there")]
        for each in found:
            del each["seconds"], each["crc32"]
        assert found[0] == found[1]
    assert not list((tmp_path / "there" / LOGS).glob("*.reports"))


def test_options_of_slurm(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    options = {"cluster": "local", "partition": "gpu", "time": "2:00:00", "gpus": "2", "mem": "8G", "nice": "10"}
    executor = OnSlurm(options).executor(tmp_path, Resources(4, 0.125), 10)
    assert executor.parameters["timeout_min"] == 120 and executor.parameters["gpus_per_node"] == 2
    with pytest.raises(SnclError, match="gpus of Slurm is a whole number, not 'two'"):
        OnSlurm(options | {"gpus": "two"}).executor(tmp_path, Resources(), 1)
    with pytest.raises(SnclError, match=r"Slurm is not there: .*; call where sbatch is found"):
        OnSlurm({}).executor(tmp_path, Resources(), 1)


@pytest.mark.parametrize(
    ("text", "found"), [("90", 90), ("90:30", 91), ("1:30:00", 90), ("2-0", 2880), ("1-12:30", 2190)]
)
def test_time_limits(text: str, found: int) -> None:
    assert minutes(text) == found
    with pytest.raises(SnclError, match="time of Slurm"):
        minutes(text + "h")


def test_reports_come_back_as_they_were_and_half_a_line_later(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "reports", KINDS)
    assert heard.news() == []
    found = Evaluation({"class_il": [90.0, 80.0]}, {"open": {"a": 1}}, ())
    moment = Moment(3, 10, 1, 2, losses={"loss": 0.5}, evaluation=found)
    text = "".join(json.dumps(plain(each)) + "\n" for each in (moment, None))
    heard.path.write_text(text[:-3])
    (first,) = heard.news()
    assert first == moment._replace(evaluation=found._replace(collapsed=[])) and first.evaluation.warning() is None
    heard.path.write_text(text)
    assert heard.news() == [None] and heard.news() == []
