"""The server process: a socket, uvicorn, and an end that stores what was learned."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from sncl.errors import SnclError
from sncl.serving.app import MAX_BODY, MAX_ROWS, PENDING, QUEUE, make_app
from sncl.serving.durability import USUAL, Durability
from sncl.serving.opening import Servable
from sncl.training.stopping import finishing, stop_asked

TOKEN = "SNCL_TOKEN"
SHORTEST_TOKEN = 16  # letters
GRACE = 30  # seconds for requests that are being answered when the server is told to end


class Server(uvicorn.Server):
    """Ends by a signal that came before uvicorn heard signals, too."""

    async def main_loop(self) -> None:
        self.should_exit = self.should_exit or stop_asked()
        await super().main_loop()


def serve(
    model: Servable,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    snapshot: str | Path | None = None,
    every: int | None = None,
    seconds: float = USUAL.seconds,
    max_body: int = MAX_BODY,
    max_rows: int = MAX_ROWS,
    queue: int = QUEUE,
    pending: int = PENDING,
    say: Callable[[str], None] = print,
) -> None:
    """Serve an estimator or a learner until Ctrl-C or SIGTERM, see :func:`sncl.serving.make_app`.

    Any other ``host`` than this machine's own needs a ``token``, which is also taken from ``$SNCL_TOKEN``. ``port`` 0
    is one that is free. ``say`` is told where it listens and what may be lost.
    """
    token = given_token(token)
    check_access(host, token)
    listening = bound(host, port)
    with listening:
        app = make_app(
            model,
            snapshot=snapshot,
            every=every,
            seconds=seconds,
            token=token,
            hosts=(host,),
            max_body=max_body,
            max_rows=max_rows,
            queue=queue,
            pending=pending,
            say=say,
        )
        service = app.state.service
        kept = "nothing is kept: `snapshot` names a file" if snapshot is None else Durability(every, seconds).in_words()
        if service.replayed:
            say(f"{service.replayed} requests of the journal were learned again")
        say(f"{address(listening, host)}: {service.teacher.view.facts.classes} classes; {kept}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE
        )
        with finishing():  # uvicorn hears the signal, and sends it again when it has ended
            Server(config).run(sockets=[listening])
        if service.teacher.failed:
            raise SnclError(f"learning has failed: {service.teacher.failed}")
        if snapshot is not None:
            whole = service.closing.is_set()  # else it was told twice, and had no time
            say(f"stored: {snapshot}" if whole else f"ended at once; the journal beside {snapshot} keeps the rest")


def given_token(token: str | None) -> str | None:
    """The token that was given, or the one in the environment."""
    return token or os.environ.get(TOKEN) or None


def check_access(host: str, token: str | None) -> None:
    """Refuse to be reached from elsewhere by anyone."""
    if token is None and not _is_local(host):
        raise SnclError(
            f"`host={host}` can be reached from other machines: give a `token` (or ${TOKEN}), or leave `host` out"
        )
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise SnclError(f"a `token` has at least {SHORTEST_TOKEN} letters of ASCII, such as openssl rand -hex 16 gives")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SnclError(f"cannot listen on {host} port {port}: {reason}; choose another `port`") from error


def address(listening: socket.socket, host: str) -> str:
    """Where a browser finds it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
