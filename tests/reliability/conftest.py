"""Programs whose files are under attack, and the runs they are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attacks import TRAIN, Undisturbed, undisturbed
from forks import Forks, why_not


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Where programs are started; the tests that ask for it are skipped where there can be no attack."""
    if reason := why_not():
        pytest.skip(reason)
    found = Forks(tmp_path_factory.mktemp("forks"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def trained(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A run of two tasks that stores a checkpoint behind every batch, in the folder ``runs/run``."""
    folder = tmp_path_factory.mktemp("trained")
    return undisturbed(forks, folder, "sncl", *TRAIN, folder / "home" / "runs" / "run")


@pytest.fixture(scope="session")
def followed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A stream that is followed with a snapshot of every batch, in the file ``live/snapshot``."""
    folder = tmp_path_factory.mktemp("followed")
    return undisturbed(forks, folder, "following", folder / "home" / "live" / "snapshot")


@pytest.fixture(scope="session")
def saved(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A learner that is saved behind every batch, in the file ``saved``."""
    folder = tmp_path_factory.mktemp("saved")
    return undisturbed(forks, folder, "saving", folder / "home" / "saved")
