"""The file a study is kept in: Optuna's journal, under a lock that the system gives back when a process ends."""

from __future__ import annotations

import os
from pathlib import Path

import optuna
from filelock import FileLock
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from sncl.errors import SnclError
from sncl.tuning.sampling import LatestMedianPruner

STUDY_NAME = "sncl tune"
TRIALS_BEFORE_PRUNING = 5
TASKS_BEFORE_PRUNING = 1


class JournalLock(JournalFileOpenLock):
    """The study's own lock in place of Optuna's, which stays for half a minute behind a process that was killed."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def acquire(self) -> bool:
        self.lock.acquire()
        return True

    def release(self) -> None:
        self.lock.release()


def open_journal(path: Path, lock: FileLock) -> tuple[JournalStorage, optuna.Study]:
    """The study in a journal, which is made where there is none. Needs the lock of the study."""
    mend(path)
    try:
        storage = JournalStorage(JournalFileBackend(str(path), JournalLock(lock)))
        study = load_study(storage, STUDY_NAME)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise SnclError(f"{path} is damaged; choose another `storage` to start over") from error
    return storage, study


def load_study(storage: BaseStorage, name: str) -> optuna.Study:
    """The study of that name, which is made where there is none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage,
        pruner=LatestMedianPruner(TRIALS_BEFORE_PRUNING, TASKS_BEFORE_PRUNING),
        study_name=name,
        direction="maximize",
        load_if_exists=True,
    )


class JournalPlace:
    """One worker's hold on a study in a file: its locks, which are files beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running = path.with_name(path.name + ".running")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(path.with_name(path.name + ".lock"))

    def open(self) -> tuple[BaseStorage, optuna.Study]:
        """The study, which is made where there is none. Needs its lock."""
        return open_journal(self.path, self.lock)

    def lock_of(self, number: int) -> FileLock:
        return FileLock(self.running / f"trial-{number}.lock", timeout=0)

    def forget(self, number: int) -> None:
        """Remove the lock of a trial that has ended."""
        (self.running / f"trial-{number}.lock").unlink(missing_ok=True)


def mend(journal: Path) -> None:
    """Refuse a file that is something else, and cut off a last line that was not written to its end."""
    if not journal.exists():
        return
    content = journal.read_bytes()
    if content and not content.startswith(b'{"op_code"'):
        raise SnclError(f"{journal} is not a journal of sncl tune; choose another `storage`")
    if content and not content.endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)
