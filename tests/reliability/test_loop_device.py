"""Power losses on a real ext4: a program is killed, and what its disk holds at that moment is all that is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attacks import TRAIN, Undisturbed
from forks import Attack, Forks
from run_folders import same_run

from sncl.training.checkpoint import read_checkpoint
from sncl.training.run import CHECKPOINT

pytestmark = pytest.mark.slow
RUN = Path("runs") / "run"


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """A file as a disk; it writes nothing by itself, so what no fsync asked for is not in the file."""
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop,commit=300", str(image), str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty disk; the test is skipped where there can be none."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("a disk in a file needs root and mkfs.ext4")
    folder = tmp_path_factory.mktemp("disk")
    image = folder / "blank"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    try:
        with mounted(image, folder / "try"):
            pass
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a disk in a file cannot be mounted here ({error.stderr.decode().strip()})")
    return image


def test_such_a_disk_loses_what_was_not_written_through(blank: Path, tmp_path: Path) -> None:
    shutil.copy(blank, tmp_path / "disk")
    with mounted(tmp_path / "disk", tmp_path / "before") as home:
        with (home / "certain").open("wb") as file:
            file.write(b"x" * 5000)
            os.fsync(file.fileno())
        (home / "lost").write_bytes(b"x" * 5000)
        shutil.copy(tmp_path / "disk", tmp_path / "left")
    with mounted(tmp_path / "left", tmp_path / "after") as home:
        assert (home / "certain").read_bytes() == b"x" * 5000
        assert not (home / "lost").exists() or (home / "lost").read_bytes() != b"x" * 5000


def test_a_run_goes_on_after_a_power_loss(forks: Forks, trained: Undisturbed, blank: Path, tmp_path: Path) -> None:
    for at in trained.attacked(8):
        place = tmp_path / str(at)
        place.mkdir()
        shutil.copy(blank, place / "disk")
        with mounted(place / "disk", place / "before") as home:
            ended = forks.sncl(*TRAIN, home / RUN, attack=Attack(str(home), at, "kill after"))
            assert ended.code == -signal.SIGKILL
            shutil.copy(place / "disk", place / "left")
        with mounted(place / "left", place / "after") as home:
            path = home / RUN / CHECKPOINT
            steps = read_checkpoint(path)[1]["learner"]["steps"] if path.exists() else 0
            assert steps >= trained.replaced(CHECKPOINT, at), at
            assert forks.sncl(*TRAIN, home / RUN).code == 0
            assert same_run(home / RUN, trained.folder / RUN)
