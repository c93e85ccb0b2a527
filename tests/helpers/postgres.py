"""A PostgreSQL server of one test module, on a free port of 127.0.0.1, that wants a password."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

PASSWORD = "se:cr@t/42"
QUOTED = "se%3Acr%40t%2F42"


class Server(NamedTuple):
    address: str  # without a password
    folder: Path
    prefix: list[str]
    programs: Path

    @property
    def with_password(self) -> str:
        return self.address.replace("sncl@", f"sncl:{QUOTED}@")

    def control(self, *arguments: str) -> None:
        """Start or stop it."""
        command = [*self.prefix, str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), "-w", *arguments]
        subprocess.run([*command, "-l", str(self.folder / "log")], check=True, capture_output=True, cwd=self.folder)


@contextmanager
def postgres() -> Iterator[Server]:
    """Start a server; skip where it is not installed or may not be started."""
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), Path(shutil.which("initdb") or "/nowhere")]
    if not found[0].exists():
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="sncl-pg-"))
    prefix: list[str] = []
    if os.geteuid() == 0:  # which the server refuses to run as
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("there is no user postgres to run the server as")
        os.chown(folder, user.pw_uid, user.pw_gid)
        prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(f"postgresql://sncl@127.0.0.1:{port}/postgres", folder, prefix, found[0].parent)
    try:
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        initdb = [*prefix, str(found[0]), "-D", str(folder / "data"), "-U", "sncl", "-A", "scram-sha-256", "-N"]
        subprocess.run([*initdb, "--pwfile", str(secret)], check=True, capture_output=True, cwd=folder)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        server.control("-o", options, "start")
        yield server
    finally:
        subprocess.run(
            [*prefix, str(found[0].parent / "pg_ctl"), "-D", str(folder / "data"), "-m", "immediate", "stop"],
            check=False,
            capture_output=True,
            cwd=folder,
        )
        shutil.rmtree(folder, ignore_errors=True)
