"""Runs on a real Ray cluster: the bits of a local run, also where workers are killed, runs stopped and heads lost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from command_line import Sncl
from processes import alive, left_behind
from ray_clusters import ROOT, Cluster, command_of, end_session, listening, ray_cluster

from sncl import run
from sncl.cli import STOPPED
from sncl.errors import SnclError
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_checkpoint, read_json
from sncl.training.run import CHECKPOINT

if find_spec("ray") is None:  # clusters load it
    pytest.skip("needs ray", allow_module_level=True)
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")

LENGTH = {"memory": 40, "tasks": 2, "device": "cpu"}
TRAIN = ["train", "--stream", "seq-digits", "--method", "derpp", "--memory", "40", "--tasks", "2", "--device", "cpu"]
TRAIN += ["--seeds", "2", "--out", "runs"]
EPOCHS = 60  # some seconds: whatever is done to a run happens before its end
LONG = [*TRAIN, "--epochs", str(EPOCHS), "--checkpoint", "0.1"]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, ray_cluster(Path(folder)) as running:
        yield running


@pytest.fixture
def joined(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


def local(folder: Path, epochs: int) -> list[Path]:
    """The same runs in this process."""
    folders = [folder / f"seed-{seed}" for seed in range(2)]
    for seed, each in enumerate(folders):
        perform(plan("seq-digits", "derpp", seed=seed, epochs=epochs, **LENGTH), each)  # type: ignore[arg-type]
    return folders


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return local(tmp_path_factory.mktemp("alone"), EPOCHS)


def assert_same_bits(here: Path, there: Path) -> None:
    ours, theirs = (read_json(each / "result.json") for each in (here, there))
    for each in (ours, theirs):
        del each["seconds"], each["crc32"]
    assert ours == theirs
    mine, other = (read_checkpoint(each / CHECKPOINT)[0] for each in (here, there))
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sncl.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_checkpoints(process: subprocess.Popen[str], folder: Path) -> None:
    while not list(folder.glob(f"seed-*/{CHECKPOINT}")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_two_workers_give_the_bits_of_a_local_run(joined: Cluster, sncl: Sncl, tmp_path: Path) -> None:
    done = sncl(*TRAIN, "--epochs", "2", "--on", "ray")
    assert done.code == 0
    assert done.err.splitlines()[0] == "runs are made on a Ray cluster: 2 CPUs, 0 GPUs on 1 machine"
    for seed, folder in enumerate(local(tmp_path / "local", 2)):
        assert_same_bits(tmp_path / "runs" / f"seed-{seed}", folder)
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")] == []


def test_ctrl_c_and_a_killed_worker_cost_nothing_but_time(joined: Cluster, tmp_path: Path, alone: list[Path]) -> None:
    process = start(tmp_path, *LONG, "--on", "ray")
    await_checkpoints(process, tmp_path / "runs")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[1:] == [STOPPED]
    assert left_behind(process.pid) == []
    while joined.workers():  # the cluster ends them in its own time
        time.sleep(0.01)
    left = [seed for seed in range(2) if not (tmp_path / "runs" / f"seed-{seed}" / "result.json").exists()]
    assert left
    process = start(tmp_path, *LONG, "--on", "ray")  # the same command goes on
    while not joined.workers():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(joined.workers()[0], signal.SIGKILL)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    for seed, folder in enumerate(alone):
        assert_same_bits(tmp_path / "runs" / f"seed-{seed}", folder)


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(joined: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = {"epochs": 1, "progress": False, "on": "ray", **LENGTH}
    assert len(run("seq-digits", "er", seeds=[0], **common)) == 1  # type: ignore[arg-type]
    name = plan("seq-digits", "er", seed=1, epochs=1, **LENGTH).name()  # type: ignore[arg-type]
    (tmp_path / "runs" / name).write_text("in the way")
    with pytest.raises(SnclError, match=r"\(1 of 2 runs failed; the others are stored\)$"):
        run("seq-digits", "er", seeds=[1, 2], **common)  # type: ignore[arg-type]
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 2


@pytest.mark.slow
def test_from_outside_the_cluster(joined: Cluster, sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    assert sncl(*TRAIN, "--epochs", "2", "--on", joined.client).code == 0
    for seed, folder in enumerate(local(tmp_path / "local", 2)):
        assert_same_bits(tmp_path / "runs" / f"seed-{seed}", folder)


@pytest.mark.slow
def test_trials_of_a_search(joined: Cluster, sncl: Sncl) -> None:
    tune = ["tune", "--stream", "seq-digits", "--method", "er", "--memory", "30", "--tasks", "1", "--epochs", "1"]
    tune += ["--seeds", "1", "--device", "cpu", "--trials", "4", "--storage", "study.journal", "--json"]
    found = sncl(*tune, "--workers", "2", "--on", "ray").json()["trials"]
    assert [trial["state"] for trial in found] == ["complete"] * 4


@pytest.mark.slow
def test_a_local_cluster_is_private_and_losing_its_head_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, *TRAIN, "--epochs", "5000", "--checkpoint", "0.1", "--on", "ray")  # never ends by itself
    try:
        await_checkpoints(process, tmp_path / "runs")
        rays = [each for each in alive(process.pid) if each != process.pid]
        addresses = set().union(*(listening(each) for each in rays))
        assert addresses and addresses <= LOOPBACK
        heads = [each for each in rays if "gcs_server" in command_of(each)]
        assert len(heads) == 1
        os.kill(heads[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    finally:
        end_session(process.pid)
    assert (process.returncode, out) == (2, "")
    started, lost = err.splitlines()
    assert started.startswith("runs are made on Ray, started here: ")
    assert lost == (
        "error: the Ray cluster does not answer any more; what the runs stored is kept, and the same command goes on"
    )


def test_an_address_without_a_cluster(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    code, out, err = sncl(*TRAIN, "--epochs", "1", "--on", "ray")
    assert (code, out, err) == (2, "", "error: there is no Ray cluster at 127.0.0.1:1\n")
