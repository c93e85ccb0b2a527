"""A Ray cluster of one test module: two CPUs of this machine, on 127.0.0.1 alone, ended with all its processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from processes import alive

ROOT = Path(__file__).resolve().parents[2]


class Cluster(NamedTuple):
    session: int  # of all its processes
    environment: dict[str, str]
    client: str  # its address for programs elsewhere

    def workers(self) -> list[int]:
        """The processes that carry out a run."""
        return [each for each in alive(self.session) if "carry_out_task" in command_of(each)]


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster whose head is a process of its own."""
    port, client = free_port(), free_port()
    environment = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 alone
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": str(folder),
    }
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]
    command += [f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2", "--include-dashboard=false"]
    command += ["--disable-usage-stats", f"--temp-dir={folder}"]
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(
            command, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True, cwd=folder
        )
    try:
        while "Ray runtime started" not in (text := (folder / "head.log").read_text()):
            assert head.poll() is None, text
            time.sleep(0.05)
        environment["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        yield Cluster(head.pid, environment, f"ray://127.0.0.1:{client}")
    finally:
        end_session(head.pid)
        head.wait()


def end_session(session: int) -> None:
    for process in alive(session):
        os.kill(process, signal.SIGKILL)


def listening(process: int) -> set[str]:
    """The addresses of this machine on which a process listens, as hexadecimal numbers of the kernel."""
    sockets = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(each)))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.add(fields[1].partition(":")[0])
    return found
