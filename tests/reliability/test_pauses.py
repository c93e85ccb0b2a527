"""One process is stopped at a call while another works in the same place, and then goes on.

Results are never mixed: the folder ends as one of the two alone would have left it, and the other ends in one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from attacks import CAMPAIGN, TRAIN, Undisturbed, undisturbed
from forks import Attack, Ended, Forks
from run_folders import contents, same_checkpoint, same_run

from sncl.training.checkpoint import read_checkpoint

OTHER = (*TRAIN[:-1], "--seed", "1", "--out")
RUN = Path("runs") / "run"
REFUSED = ("another process is running in", "holds another experiment; choose another --out")


@pytest.fixture(scope="module")
def other(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Another run, left alone."""
    folder = tmp_path_factory.mktemp("other")
    return undisturbed(forks, folder, "sncl", *OTHER, folder / "home" / RUN)


def pauses(alone: Undisturbed, lock: str) -> list[int]:
    """Where a program is stopped: around the call that opens its lock, and later; everywhere in a campaign."""
    if CAMPAIGN:
        return list(range(1, len(alone.calls) + 1))
    opened = next(number for number, call in enumerate(alone.calls, 1) if Path(call.path).name == lock)
    return [opened - 1, opened, opened + 1, opened + 4, len(alone.calls) // 2, len(alone.calls)]


class Met(NamedTuple):
    """How the two ended: the one that was stopped meanwhile, and the one that was not."""

    stopped: Ended
    passing: Ended


def meet(forks: Forks, home: Path, at: int, first: tuple[str, ...], second: tuple[str, ...]) -> Met:
    """Stop the first program at a call, run the second to its end, and let the first go on."""
    home.mkdir()
    pid = forks.start(*first, attack=Attack(str(home), at, "stop"))
    assert forks.wait(pid).stopped
    passing = forks.wait(forks.start(*second))
    forks.go_on(pid)
    return Met(forks.wait(pid), passing)


def refused(ended: Ended) -> bool:
    (line,) = ended.lines()
    return ended.code == 2 and any(each in line for each in REFUSED)


def test_the_same_run_twice(forks: Forks, trained: Undisturbed, tmp_path: Path) -> None:
    for at in pauses(trained, ".lock"):
        home = tmp_path / str(at)
        command = ("sncl", *TRAIN, str(home / RUN))
        met = meet(forks, home, at, command, command)
        assert met.stopped.code == 0, met
        assert met.passing.code == 0 or refused(met.passing), met
        assert same_run(home / RUN, trained.folder / RUN)


def test_two_runs_in_one_folder(forks: Forks, trained: Undisturbed, other: Undisturbed, tmp_path: Path) -> None:
    winners = set()
    for at in pauses(trained, ".lock"):
        home = tmp_path / str(at)
        commands = [("sncl", *each, str(home / RUN)) for each in (TRAIN, OTHER)]
        met = meet(forks, home, at, *commands)
        winner = int(met.stopped.code != 0)  # 0: the one that was stopped
        winners.add(winner)
        assert met[winner].code == 0 and refused(met[1 - winner]), met
        assert same_run(home / RUN, (trained, other)[winner].folder / RUN)
        before = contents(home)
        assert refused(forks.wait(forks.start(*commands[1 - winner])))
        assert contents(home) == before
    assert winners == {0, 1}


def test_three_at_once(forks: Forks, trained: Undisturbed, tmp_path: Path) -> None:
    """The first is stopped before it has the lock, the second with it: the first then ends, and the second goes on."""
    at = pauses(trained, ".lock")[0]
    command = ("sncl", *TRAIN, str(tmp_path / RUN))
    first = forks.start(*command, attack=Attack(str(tmp_path), at, "stop"))
    assert forks.wait(first).stopped
    second = forks.start(*command, attack=Attack(str(tmp_path), len(trained.calls) // 2, "stop"))
    assert forks.wait(second).stopped
    forks.go_on(first)
    assert refused(forks.wait(first))
    forks.go_on(second)
    assert forks.wait(second).code == 0
    assert same_run(tmp_path / RUN, trained.folder / RUN)


def test_two_that_follow_with_one_snapshot(forks: Forks, followed: Undisturbed, tmp_path: Path) -> None:
    for at in pauses(followed, ".snapshot.lock"):
        home = tmp_path / str(at)
        program = ("following", str(home / "live" / "snapshot"))
        met = meet(forks, home, at, program, program)
        assert met.stopped.code == 0, met
        if met.passing.code != 0:
            (line,) = met.passing.lines()
            assert met.passing.code == 2 and "another process follows a stream with" in line
        assert same_checkpoint(home / "live" / "snapshot", followed.folder / "live" / "snapshot")


def test_two_that_save_in_one_file(forks: Forks, saved: Undisturbed, tmp_path: Path) -> None:
    """Nothing is locked: the last one to save is the one whose file is there, and it is whole."""
    for at in saved.attacked(6):
        home = tmp_path / str(at)
        program = ("saving", str(home / "saved"))
        met = meet(forks, home, at, program, program)
        assert (met.stopped.code, met.passing.code) == (0, 0), met
        assert same_checkpoint(home / "saved", saved.folder / "saved")
        assert read_checkpoint(home / "saved.previous")[1]["steps"] in (7, 8)
