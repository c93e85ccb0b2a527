"""``python -m sncl``, and what a shell is offered to complete."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def shell(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sncl", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_the_package_is_a_program(tmp_path: Path) -> None:
    done = shell(tmp_path, "--version")
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "sncl", "")
    assert "Usage: sncl train" in shell(tmp_path, "train", "--help").stdout
    assert shell(tmp_path, "train", "--stream", "seq-digits", "--method", "der++").returncode == 2


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sncl re", ["reproduce", "report"]),
        ("sncl train --method der", ["der", "derpp", "derpp+"]),
        ("sncl train --stream rot", ["rot-mnist", "rot-digits"]),
        ("sncl tune --set adm", ["admission="]),
        ("sncl report ru", ["runs/", "runs/more/", "runs/one"]),
        ("sncl analyze sparsity runs/", ["runs/more/", "runs/one"]),
        ("sncl data fetch ci", ["cifar10"]),
        ("sncl train --stream ./", []),  # the shell's own files
    ],
)
def test_the_shell_completes(tmp_path: Path, typed: str, offered: list[str]) -> None:
    for name in ("one", "more/two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "experiment.json").touch()
    words = str(len(typed.split()) - 1)
    done = shell(tmp_path, _SNCL_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=words)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(offered)


def test_completion_can_be_installed_and_works_in_bash(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    program = f"{sys.executable} -m sncl"
    script = (
        f'{program} --install-completion && source "$HOME/.bash_completions/sncl.sh"\n'
        "COMP_WORDS=(sncl train --method lw); COMP_CWORD=3; _sncl_completion ./sncl; echo ${COMPREPLY[@]}"
    )
    (tmp_path / "sncl").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (tmp_path / "sncl").chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "completion installed in" in done.stdout and done.stdout.splitlines()[-1] == "lwf"
