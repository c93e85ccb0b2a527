"""What needs no torch does not load it: a finished run is shown, names are listed and errors are said at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Done, Sncl

from sncl.methods.table import METHODS
from sncl.runs.plan import plan
from sncl.training.gpu import may_have_gpu

TRAIN = ["train", "--stream", "seq-digits", "--method", "er", "--tasks", "2", "--epochs", "1", "--device", "cpu"]
PROBE = """
import atexit, sys
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
