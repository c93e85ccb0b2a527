"""What a machine is told to do, and doing it there: in the same folder, with the same code, on the same data."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sncl
from sncl.errors import Busy, SnclError
from sncl.executors.fleet import Calls, Report
from sncl.training.parallel import failure
from sncl.training.stopping import heeding

DATA = "SNCL_DATA"
CARRIED = (DATA, "PGPASSWORD")  # variables of the environment that go along
BUSY_SECONDS = 120.0  # that a folder may stay locked by a process of a machine that was lost
PAUSE = 1.0

Outcome = tuple[bool, Any]  # whether it went well, and the result or the error


@dataclass(frozen=True)
class Order:
    """One job for another machine. ``call()`` brings the function and the job, when their modules can be found."""

    call: Callable[[], tuple[Any, Any]]
    here: Path
    sign: Path
    modules: tuple[str, ...]
    environment: dict[str, str]
    version: str


@contextmanager
def orders(calls: Calls, secret: bool = True) -> Iterator[list[Order]]:
    """The orders for all jobs, and a sign in the shared folder while they are carried out.

    Without ``secret`` no order holds anything that must not be written to a file.
    """
    here = Path.cwd()
    try:
        calls.root.mkdir(parents=True, exist_ok=True)
        sign = (calls.root / f".shared-{secrets.token_hex(8)}").absolute()
        sign.touch()
    except OSError as error:
        raise SnclError(f"cannot write to {calls.root}: {error.strerror or error}") from error
    modules = tuple(str(here / each) for each in sys.path if (here / each).is_relative_to(here))
    carried = {name: os.environ[name] for name in CARRIED[: 2 if secret else 1] if name in os.environ}
    if DATA in carried:
        carried[DATA] = str(Path(carried[DATA]).absolute())
    try:
        yield [
            Order(PlainCall(calls.function, job), here, sign, modules, carried, sncl.__version__) for job in calls.jobs
        ]
    finally:
        with suppress(OSError):
            sign.unlink()


@dataclass(frozen=True)
class PlainCall:
    """A call as it is."""

    function: Any
    job: Any

    def __call__(self) -> tuple[Any, Any]:
        return self.function, self.job


def carry_out(order: Order, report: Report) -> Outcome:
    """Do it here."""
    try:
        check(order)
        os.chdir(order.here)
        sys.path += [each for each in order.modules if each not in sys.path]
        os.environ.update(order.environment)
        function, job = order.call()
        with heeding():
            return True, patiently(function, job, report)
    except SnclError as error:
        return False, error
    except Exception:
        return False, RuntimeError(f"a run broke off:\n{traceback.format_exc()}")


def check(order: Order) -> None:
    """Refuse to work where the folder, the data or the program are not those of whoever asks."""
    machine = platform.node()
    if sncl.__version__ != order.version:
        raise SnclError(f"{machine} has sncl {sncl.__version__}, and {order.version} asks; install the same everywhere")
    if not order.sign.exists():
        raise SnclError(
            f"{machine} does not see the folder {order.sign.parent}; runs on several machines need one that all share, "
            "under the same path"
        )
    if not order.here.is_dir():
        raise SnclError(f"{machine} has no folder {order.here}; call from a folder that all machines share")
    if DATA in order.environment and not Path(order.environment[DATA]).is_dir():
        raise SnclError(f"{machine} has no folder {order.environment[DATA]}, which {DATA} names; bring the data there")


def patiently(function: Any, job: Any, report: Report) -> Any:
    """Call the function; where its folder is still locked by a process that was given up, wait for that to end."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return function(job, report)
        except Busy:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE)


def results(outcomes: list[Outcome]) -> list[Any]:
    """The results of all jobs, or the first failure."""
    failed = {number: value for number, (well, value) in enumerate(outcomes) if not well}
    if failed:
        raise failure(failed[min(failed)], len(failed), len(outcomes))
    return [value for _, value in outcomes]
