"""What stands in front of every request: who may ask, how much, and how long it took."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from starlette.responses import JSONResponse

from sncl.serving.metrics import RequestCounts
from sncl.serving.refusals import RequestRefused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = {"/", "/docs", "/healthz"}  # without a token: a page without content of the model, and whether it lives
ROUTES = {*OPEN, "/predict", "/learn", "/metrics", "/openapi.json"}
LOCAL = {"127.0.0.1", "localhost", "::1"}
SECONDS = 30.0  # for the body of a request to arrive
DRAINED = 64 * 2**20  # bytes of a body that is too long are read and thrown away, so that the answer arrives


class Access(NamedTuple):
    """Who may ask: the token, if there is one, else names of this machine. And how much at once."""

    token: str | None
    hosts: frozenset[str]
    max_body: int
    most: int  # requests at once


class Guard:
    """Refuses what may not pass and counts what came."""

    def __init__(self, app: App, access: Access, counts: RequestCounts) -> None:
        self.app, self.access, self.counts = app, access, counts
        self.running = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        self.running += 1

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            try:
                given = await self._passed(scope, receive)
            except RequestRefused as error:
                await refusal(error)(scope, receive, noting)
            else:
                await self.app(scope, given, noting)
        finally:
            self.running -= 1
            route = scope["path"] if scope["path"] in ROUTES else "other"
            self.counts.count(route, status, time.perf_counter() - begun)

    async def _passed(self, scope: Message, receive: Receive) -> Receive:
        """How the rest reads the body of a request that may pass."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.running > self.access.most:
            raise RequestRefused(503, f"{self.access.most} requests are being answered already; send it again later")
        self._check_sender(scope["path"], headers)
        if scope["method"] != "POST" or scope["path"] not in ROUTES:
            return receive
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestRefused(415, "a body is JSON, with the header Content-Type: application/json")
        try:
            body = await asyncio.wait_for(self._body(receive), SECONDS)
        except TimeoutError as error:
            raise RequestRefused(408, f"the body did not arrive within {SECONDS:g} s") from error
        return _reading(body, receive)

    def _check_sender(self, path: str, headers: dict[str, str]) -> None:
        token = self.access.token
        if token is not None:
            given = headers.get("authorization", "")
            if path not in OPEN and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                raise RequestRefused(401, "this server wants its token, in the header Authorization: Bearer ...")
        elif _host(headers.get("host", "")) not in self.access.hosts:  # a page elsewhere whose name leads here
            raise RequestRefused(400, "without a token this server answers under the names of this machine only")

    async def _body(self, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more and size <= max(DRAINED, self.access.max_body):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestRefused(400, "the body did not arrive")
            size += len(message.get("body", b""))
            if size <= self.access.max_body:
                parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        if size > self.access.max_body:
            raise RequestRefused(413, f"a body has at most {self.access.max_body} bytes; send it in parts")
        return b"".join(parts)


def _host(header: str) -> str:
    """The name in a header ``Host``, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _reading(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, as if it had just come."""
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def refusal(error: RequestRefused) -> JSONResponse:
    """A refusal as an answer; without backquotes, which are for Python."""
    return JSONResponse({"error": str(error).replace("`", "")} | error.more, error.status, error.headers)
