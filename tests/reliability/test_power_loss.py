"""The power fails behind any call: whatever the disk may hold then, nothing that was stored is lost.

The calls of a program are followed through a model of a disk on which only what was written through is certain
(``power_loss``). Every state that such a disk may be left in is looked at, and the program goes on from each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks import CAMPAIGN, TRAIN, Undisturbed
from forks import Forks
from power_loss import Content, Disk, Folder, leave
from run_folders import RESULT, same_checkpoint, same_run

from sncl.training.checkpoint import read_checkpoint
from sncl.training.run import CHECKPOINT


def states(alone: Undisturbed) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The states a power loss may leave, and before which call."""
    disk = Disk(str(alone.folder))
    for number, call in enumerate(alone.calls, 1):
        disk.follow(call)
        for files in disk.states():
            yield number + 1, files


def distinct(alone: Undisturbed, some: int) -> list[dict[str, bytes]]:
    """Some of the states that differ in a file somebody reads, with what nobody reads; all in a campaign."""
    found = {}
    for _, files in states(alone):
        found[tuple(sorted((name, each) for name, each in files.items() if not name.endswith(".part")))] = files
    assert len(found) > some
    return list(found.values())[:: 1 if CAMPAIGN else -(-len(found) // some)]


def test_what_is_stored_is_there_after_a_power_loss(trained: Undisturbed, tmp_path: Path) -> None:
    path, count = tmp_path / CHECKPOINT, 0
    for before, files in states(trained):
        stored = files.get(f"runs/run/{CHECKPOINT}")
        if stored is not None:
            path.write_bytes(stored)
        steps = read_checkpoint(path)[1]["learner"]["steps"] if stored is not None else 0
        assert steps >= trained.replaced(CHECKPOINT, before), before
        assert f"runs/run/{RESULT}" in files or not trained.replaced(RESULT, before)
        count += 1
    assert count > 200


def test_a_run_goes_on_after_a_power_loss(forks: Forks, trained: Undisturbed, tmp_path: Path) -> None:
    for number, files in enumerate(distinct(trained, 16)):
        home = leave(files, tmp_path / str(number))
        ended = forks.sncl(*TRAIN, home / "runs" / "run")
        assert ended.code == 0, (sorted(files), ended.err)
        assert same_run(home / "runs" / "run", trained.folder / "runs" / "run")


@pytest.mark.parametrize(
    ("program", "alone", "name"), [("following", "followed", "live/snapshot"), ("saving", "saved", "saved")]
)
def test_a_stream_goes_on_after_a_power_loss(
    forks: Forks, request: pytest.FixtureRequest, tmp_path: Path, program: str, alone: str, name: str
) -> None:
    undisturbed: Undisturbed = request.getfixturevalue(alone)
    file = Path(name).name
    for before, files in states(undisturbed):
        assert name in files or not undisturbed.replaced(file, before)
    for number, files in enumerate(distinct(undisturbed, 8)):
        home = leave(files, tmp_path / str(number))
        assert forks.call(program, str(home / name)).code == 0
        assert same_checkpoint(home / name, undisturbed.folder / name)


# --- the model itself ------------------------------------------------------------------------------------------------


def test_what_was_not_written_through_may_be_lost() -> None:
    file = Content()
    file.change(b"first")
    file.sync()
    assert file.possible() == [b"first"]
    file.change(b"first second")
    assert set(file.possible()) == {b"first", b"first second", b"first se", b"first" + bytes(7)}


def test_names_that_were_not_written_through_may_be_lost() -> None:
    folder, file = Folder(), Content(b"x", b"x")
    folder.change({"part": file})
    folder.sync()
    folder.change({"part": None, "whole": file})
    assert [*folder.possible()] == [{"part": b"x"}, {"whole": b"x"}]
    folder.sync()
    assert [*folder.possible()] == [{"whole": b"x"}]
