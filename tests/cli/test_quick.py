"""What needs no torch does not load it: a finished run is shown, names are listed and errors are said at once."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import user_files as files
from command_line import Done, Sncl

from sncl.methods.table import METHODS
from sncl.runs.plan import plan
from sncl.training.gpu import may_have_gpu

TRAIN = ["train", "--stream", "seq-digits", "--method", "er", "--tasks", "2", "--epochs", "1", "--device", "cpu"]
PROBE = """
import atexit, sys
import sncl.streams.user.stamp
sncl.streams.user.stamp.SETTLED = 0  # files of tests are young
heavy = ("torch", "sklearn", "scipy", "pandas", "PIL")
atexit.register(lambda: print("loaded:", *(name for name in heavy if name in sys.modules), file=sys.stderr))
from sncl.cli import main
main()
"""


def probed(folder: Path, *arguments: str) -> Done:
    """Run a command as a program of its own, which says in the end what it has loaded."""
    command = [sys.executable, "-c", PROBE, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def test_finished_runs_are_shown_without_torch(sncl: Sncl, tmp_path: Path) -> None:
    for seed in ("0", "1"):
        assert sncl(*TRAIN, "--seed", seed, "--out", f"both/seed-{seed}").code == 0
    several = [*TRAIN, "--seeds", "2", "--out", "both"]
    done, here = probed(tmp_path, *several), sncl(*several)
    assert (done.code, done.out) == (0, here.out)
    assert done.err == here.err + "loaded:\n"
    assert done.err.count("already finished: both/seed-") == 2
    one_more = probed(tmp_path, *TRAIN, "--seeds", "3", "--out", "both")
    assert one_more.code == 0 and one_more.err.splitlines()[-1].startswith("loaded: torch")


def test_a_finished_run_of_the_default_folder_is_found_without_torch(sncl: Sncl, tmp_path: Path) -> None:
    settings = ["--set", "lr=0.05", "--memory", "50"]
    assert sncl(*TRAIN, *settings).code == 0
    done = probed(tmp_path, *TRAIN, *settings)
    assert done.err.startswith("already finished: runs/seq-digits-er-50-seed0-") and done.err.endswith("\nloaded:\n")


OWN: dict[str, Callable[[Path], Path]] = {
    "table": lambda folder: files.save_table(folder / "flowers.csv"),
    "npz": lambda folder: files.save_digits(folder / "digits.npz"),
    "folder": lambda folder: files.save_small_images(folder / "zoo"),
}


@pytest.mark.parametrize("form", list(OWN))
@pytest.mark.parametrize("place", [[], ["--out", "kept"]], ids=["default", "out"])
def test_finished_runs_on_own_data_are_shown_without_torch(
    sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, place: list[str]
) -> None:
    monkeypatch.setattr("sncl.streams.user.stamp.SETTLED", 0)
    data = OWN[form](tmp_path)
    command = ["train", "--stream", str(data), "--method", "er", "--epochs", "1", "--device", "cpu", "--tasks", "1"]
    command += ["--set", "width=8", *place]
    first = sncl(*command)
    done, here = probed(tmp_path, *command), sncl(*command)
    assert (first.code, done.code, done.out) == (0, 0, first.out)
    assert done.err == here.err + "loaded:\n"
    told = [line for line in done.err.splitlines() if line.startswith(f"{form}:")]
    assert told and told == [line for line in first.err.splitlines() if line.startswith(f"{form}:")]
    assert "already finished: " in done.err


def test_own_data_that_changed_are_noticed_by_size_and_by_time(
    sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sncl.streams.user.stamp.SETTLED", 0)
    table = files.save_table(tmp_path / "flowers.csv")
    command = ["train", "--stream", str(table), "--method", "er", "--epochs", "1", "--device", "cpu", "--out", "kept"]
    assert sncl(*command).code == 0
    before, times = table.read_bytes(), table.stat()
    assert before.count(b"5.1,") > 0
    table.write_bytes(before.replace(b"5.1,", b"5.2,", 1))  # as long as before, and dated back
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    for done in (probed(tmp_path, *command), sncl(*command)):
        assert done.code == 2 and "was made with other data" in done.err
    table.write_bytes(before)
    assert "already finished: kept" in sncl(*command).err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["train", "--help"], 0), (["list"], 0), ([*TRAIN[:3], "--method", "nosuch"], 2)],
)
def test_what_only_names_things_loads_nothing_heavy(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = probed(tmp_path, *arguments)
    assert (done.code, done.err.splitlines()[-1]) == (code, "loaded:")


@pytest.mark.parametrize("method", list(METHODS))
def test_a_run_is_looked_for_as_it_was_planned(method: str) -> None:
    for stream in ("seq-digits", "seq-cifar10"):
        options = {"memory": 77, "seed": 3, "device": "cpu", "settings": {"lr": "0.2"}}
        assert plan(stream, method, **options, unchecked=True) == plan(stream, method, **options)


def test_without_a_finished_run_everything_is_checked(sncl: Sncl, tmp_path: Path) -> None:
    refused = sncl("train", "--stream", "digits-360", "--method", "gem", "--device", "cpu")
    assert refused.code == 2 and "must be told where tasks end" in refused.err
    wrong = sncl(*TRAIN[:3], "--method", "sncl", "--set", "admission=nosuch", "--device", "cpu")
    assert wrong.code == 2 and "is one of loss-aware, reservoir" in wrong.err
    assert not (tmp_path / "runs").exists()


def test_a_gpu_is_never_overlooked() -> None:
    import torch

    assert may_have_gpu() or not torch.cuda.is_available()
    assert plan("seq-digits", "er", unchecked=True) == plan("seq-digits", "er")
