"""A study in a PostgreSQL server, for machines that share no folder.

What file locks do for a journal, advisory locks of the server do here: they belong to a connection, and the server
gives them back when that ends. Both ends ask each other for signs of life (TCP keepalive), so that a machine that was
lost is noticed within a minute. A connection that breaks is made anew.
"""

from __future__ import annotations

import time
import weakref
import zlib
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import optuna
import psycopg
import sqlalchemy.exc
from filelock import Timeout
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage

from sncl.errors import SnclError
from sncl.tuning.address import Database
from sncl.tuning.journal import load_study

PATIENCE_SECONDS = 60.0  # that the server may be away
PAUSE = 1.0
SIGNS_OF_LIFE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "options": "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3",
}
AWAY = (psycopg.OperationalError, sqlalchemy.exc.OperationalError, StorageInternalError)


def unreachable(error: Exception) -> SnclError:
    return SnclError(f"the database of `storage` does not answer: {error.__cause__ or error}; the same command goes on")


def patiently(call: Callable[[], Any]) -> Any:
    """Call again while the server is away."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except AWAY as error:
            if time.monotonic() > until:
                raise unreachable(error) from error
        time.sleep(PAUSE)


class PatientStorage(RDBStorage):
    """Optuna's storage, which asks again where a connection broke."""


def _patient(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def asked(*arguments: Any, **named: Any) -> Any:
        return patiently(partial(method, *arguments, **named))

    return asked


for _name in BaseStorage.__abstractmethods__:
    setattr(PatientStorage, _name, _patient(getattr(RDBStorage, _name)))


class DatabasePlace:
    """One worker's hold on a study in a database: its locks, by a connection of their own."""

    def __init__(self, database: Database, out: Path) -> None:
        self.database = database
        self.running = out.with_suffix(".running")  # the runs of trials, on this machine
        self.running.parent.mkdir(parents=True, exist_ok=True)
        self.key = zlib.crc32(database.study.encode()) - 2**31  # PostgreSQL has signed numbers
        self.held: set[int] = set()
        try:
            self.connection = self.connect()
        except psycopg.Error as error:
            raise unreachable(error) from error
        self.lock = DatabaseLock(self)

    def connect(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(self.database.address, autocommit=True, **SIGNS_OF_LIFE)
        weakref.finalize(self, made.close)
        return made

    def open(self) -> tuple[BaseStorage, optuna.Study]:
        """The study, which is made where there is none. Needs its lock."""
        settings = {"pool_pre_ping": True, "pool_size": 1, "connect_args": SIGNS_OF_LIFE}
        try:
            storage = PatientStorage(self.database.for_optuna(), engine_kwargs=settings)
        except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
            raise unreachable(error) from error
        weakref.finalize(self, storage.engine.dispose)
        return storage, load_study(storage, self.database.study)

    def ask(self, function: str, number: int) -> bool:
        """Call one of the server's functions for the lock of that number."""

        def once() -> bool:
            if self.connection.closed:
                self.connection = self.connect()
                for each in self.held:
                    self.connection.execute("select pg_try_advisory_lock(%s, %s)", (self.key, each))
            found = self.connection.execute(f"select {function}(%s, %s)", (self.key, number)).fetchone()
            return found is not None and found[0] is not False

        answer: bool = patiently(once)
        return answer

    def lock_of(self, number: int) -> TrialLock:
        return TrialLock(self, number + 1)

    def forget(self, number: int) -> None:
        """The lock of a trial leaves nothing behind."""


class DatabaseLock:
    """The lock of the whole study; whoever has it may ask for it again."""

    def __init__(self, place: DatabasePlace) -> None:
        self.place = place
        self.depth = 0

    def __enter__(self) -> None:
        if not self.depth:
            self.place.ask("pg_advisory_lock", 0)
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.place.ask("pg_advisory_unlock", 0)


class TrialLock:
    """The lock of one trial, taken at once or not at all."""

    def __init__(self, place: DatabasePlace, number: int) -> None:
        self.place, self.number = place, number

    def acquire(self) -> None:
        if not self.place.ask("pg_try_advisory_lock", self.number):
            raise Timeout(f"trial {self.number - 1}")
        self.place.held.add(self.number)

    def release(self) -> None:
        self.place.held.discard(self.number)
        self.place.ask("pg_advisory_unlock", self.number)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
