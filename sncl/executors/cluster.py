"""A connection to a Ray cluster, quiet and without statistics; a local one listens on 127.0.0.1 alone."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.executors.fleet import Resources
from sncl.training.parallel import cores

LOOK_SECONDS = 1.0  # between two looks at the head
LOST_LOOKS = 3  # in a row that find no head: it is gone
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_LOG_TO_STDERR": "0",
    "GRPC_VERBOSITY": "NONE",
    "PYTHONWARNINGS": "ignore",
}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # switched off, Ray stays on 127.0.0.1, as it does on these


class Head:
    """The head of a cluster that this process has joined."""

    def __init__(self, ray: Any, started: bool) -> None:
        self.ray, self.started = ray, started
        self.client = ray.util.client.ray.is_connected()
        self.gcs = None if self.client else ray.get_runtime_context().gcs_address
        self.looked = time.monotonic()
        self.missed = 0

    def words(self) -> str:
        there = self.ray.cluster_resources()
        machines = sum(bool(node["Alive"]) for node in self.ray.nodes())
        what = f"{there.get('CPU', 0):g} CPUs, {there.get('GPU', 0):g} GPUs"
        if self.started:
            return f"runs are made on Ray, started here: {what}"
        return f"runs are made on a Ray cluster: {what} on {machines} machine{'s' if machines != 1 else ''}"

    def check_room(self, share: Resources) -> None:
        """Refuse runs that no machine could ever take, which would wait for ever."""
        rooms = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(each.get("GPU", 0) >= share.gpus and each.get("CPU", 0) >= share.cpus for each in rooms):
            wanted = f"{share.cpus} CPUs" + (" and a GPU" if share.gpus else "")
            raise SnclError(f"no machine of the Ray cluster has {wanted}; change `threads` or `device`")

    def part_of(self, share: Resources, jobs: int) -> Resources:
        """The share of each of so many runs: more of a GPU where Ray would fill one and leave others empty."""
        if not share.gpus:
            return share
        runs_on_each = math.ceil(jobs / self.ray.cluster_resources()["GPU"])
        return Resources(share.cpus, max(share.gpus, 1 / runs_on_each))

    def answers(self) -> bool:
        """Whether the head is there, looked for now and then."""
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return True
        self.looked = time.monotonic()
        if self.client:
            return bool(self.ray.util.client.ray.is_connected())
        self.missed = 0 if reachable(str(self.gcs)) else self.missed + 1
        if self.missed >= LOST_LOOKS:
            atexit.register(os._exit, 1)  # Ray would wait for the head before it lets this process end
            return False
        return True


def reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False


def running_cluster() -> str | None:
    """The address of the cluster that the environment names, or that `ray start` has made on this machine."""
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    with suppress(OSError):
        address = note.read_text().strip()
        return address if reachable(address) else None
    return None


@contextmanager
def joined(address: str | None, share: Resources) -> Iterator[Head]:
    """Join the cluster at an address, or the one that is running, or start a local one for the block."""
    warnings.simplefilter("ignore")
    os.environ.update(QUIET)
    place = address or running_cluster()
    folder = None
    if place is None:
        os.environ.update({LOOPBACK: "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        folder = tempfile.mkdtemp(prefix="sncl-ray-")
    elif "://" not in place and not reachable(place):  # Ray would look for it for a long time
        raise SnclError(f"there is no Ray cluster at {place}")
    silence()
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        if place is None:
            room: dict[str, Any] = {
                "num_cpus": max(cores(), share.cpus),
                "include_dashboard": False,
                "_temp_dir": folder,
            }
            ray.init(address="local", **room, **quiet)
        else:
            ray.init(address=place, **quiet)
        yield Head(ray, place is None)
    except (ConnectionError, TimeoutError, ray.exceptions.RayError) as error:
        raise SnclError(f"there is no Ray cluster at {place or 'this machine'}: {error}") from error
    finally:
        if not ray.is_initialized() or place is not None or reachable(str(ray.get_runtime_context().gcs_address)):
            ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def silence() -> None:
    """Let nothing that Ray writes by itself reach the terminal: errors come as exceptions."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
