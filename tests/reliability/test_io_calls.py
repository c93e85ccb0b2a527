"""Killed, or failed by the system, at any call that changes a file: the same command ends with the same bits.

A few dozen calls by default; every one of them with SNCL_CAMPAIGN=1, which is `make campaign`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attacks import ERRORS, TRAIN, Undisturbed
from forks import Attack, Ended, Forks
from run_folders import same_checkpoint, same_run

from sncl.training.checkpoint import read_checkpoint
from sncl.training.run import CHECKPOINT

KILLS = ("kill before", "kill after", "kill half")
RUN = Path("runs") / "run"


def stored_steps(folder: Path) -> int:
    """How far the checkpoint in a run folder is; a damaged one is an error."""
    path = folder / CHECKPOINT
    return int(read_checkpoint(path)[1]["learner"]["steps"]) if path.exists() else 0


def said_in_one_line(ended: Ended, folder: Path) -> bool:
    """Whether a failing call was told of in one line that names the place, with exit code 2 and no traceback."""
    (line,) = ended.lines()
    return ended.code == 2 and line.startswith("error: ") and str(folder) in line


def attacked_run(forks: Forks, trained: Undisturbed, home: Path, attack: Attack) -> Ended:
    """The run under attack: what was stored before is not lost."""
    home.mkdir()
    ended = forks.sncl(*TRAIN, home / RUN, attack=attack)
    assert stored_steps(home / RUN) >= trained.replaced(CHECKPOINT, attack.at), attack
    return ended


def goes_on(forks: Forks, trained: Undisturbed, home: Path) -> bool:
    """Whether the same command ends as if nothing had happened."""
    again = forks.sncl(*TRAIN, home / RUN)
    assert again.code == 0, again.err
    return same_run(home / RUN, trained.folder / RUN)


@pytest.mark.parametrize("action", KILLS)
def test_a_run_killed_at_any_call(forks: Forks, trained: Undisturbed, tmp_path: Path, action: str) -> None:
    half = action == "kill half"
    for at in trained.attacked(3, only="write") if half else trained.attacked(6, KILLS.index(action), 2):
        home = tmp_path / str(at)
        ended = attacked_run(forks, trained, home, Attack(str(home), at, action))
        assert ended.code == -signal.SIGKILL
        assert goes_on(forks, trained, home)


@pytest.mark.parametrize("action", ["fail once", "fail on"])
@pytest.mark.parametrize("error", ERRORS)
def test_a_run_with_a_failing_call(forks: Forks, trained: Undisturbed, tmp_path: Path, action: str, error: str) -> None:
    for at in trained.attacked(2, ERRORS.index(error) + 4 * (action == "fail on"), 8):
        home = tmp_path / str(at)
        ended = attacked_run(forks, trained, home, Attack(str(home), at, action, error))
        refused = trained.calls[at - 1].op == "nothing"  # by the system, too: the folder is there already
        assert said_in_one_line(ended, home) if ended.code or not refused else refused, (at, ended)
        assert goes_on(forks, trained, home)


def test_the_calls_under_attack_are_of_every_kind(trained: Undisturbed) -> None:
    for calls in (trained.attacked(12), trained.attacked(16)):
        assert {trained.calls[at - 1].op for at in calls} >= {"mkdir", "open", "write", "truncate", "fsync", "rename"}


def test_a_run_killed_at_every_start(forks: Forks, trained: Undisturbed, tmp_path: Path) -> None:
    """Each time it gets a batch or two further."""
    (tmp_path / "runs").mkdir()
    reached = [0]
    while forks.sncl(*TRAIN, tmp_path / RUN, attack=Attack(str(tmp_path), 28, "kill before")).code != 0:
        reached.append(stored_steps(tmp_path / RUN))
        assert reached[-1] > reached[-2]
    assert len(reached) > 5
    assert same_run(tmp_path / RUN, trained.folder / RUN)


@pytest.mark.slow
def test_a_program_of_its_own_is_killed(forks: Forks, trained: Undisturbed, tmp_path: Path) -> None:
    """The same with nothing shared: the interpreter, started with the shim in front of its C library."""
    attack = Attack(str(tmp_path), len(trained.calls) // 2, "kill after")
    command = [sys.executable, "-m", "sncl.cli", *TRAIN, str(tmp_path / RUN)]
    environment = os.environ | attack.environment() | {"LD_PRELOAD": str(forks.library)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert 0 < stored_steps(tmp_path / RUN) < stored_steps(trained.folder / RUN)
    subprocess.run(command, check=True, capture_output=True)
    assert same_run(tmp_path / RUN, trained.folder / RUN)


# --- the library, used by hand ---------------------------------------------------------------------------------------

PROGRAMS = {"following": Path("live") / "snapshot", "saving": Path("saved")}


@pytest.mark.parametrize("action", [*KILLS, "fail once", "fail on"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stream_that_is_stored_is_learned_once(
    forks: Forks, tmp_path: Path, request: pytest.FixtureRequest, program: str, action: str
) -> None:
    """What a program was told of as stored is there, whatever happens later; started again, it ends the same."""
    alone: Undisturbed = request.getfixturevalue({"following": "followed", "saving": "saved"}[program])
    for count, at in enumerate(alone.attacked(5, only="write" if action == "kill half" else "")):
        home = tmp_path / str(at)
        home.mkdir()
        path = home / PROGRAMS[program]
        ended = forks.call(program, str(path), attack=Attack(str(home), at, action, ERRORS[count % 4]))
        if action in KILLS:
            assert ended.code == -signal.SIGKILL
        else:  # the file before it is copied where there are no links: nothing to tell then
            unharmed = alone.calls[at - 1].op in ("link", "nothing") and action == "fail once"
            assert said_in_one_line(ended, home) if ended.code or not unharmed else unharmed, (at, ended)
        told = [0, *map(int, ended.out.split())][-1]
        assert (read_checkpoint(path)[1]["steps"] if path.exists() else 0) >= told
        assert forks.call(program, str(path)).code == 0
        assert same_checkpoint(path, alone.folder / PROGRAMS[program])
