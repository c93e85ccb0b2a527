"""The HTTP interface of a model in use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

import sncl
from sncl.errors import SnclError
from sncl.serving.durability import USUAL, Durability
from sncl.serving.guard import LOCAL, ROUTES, Access, Guard, refusal
from sncl.serving.metrics import RequestCounts, metrics_text
from sncl.serving.opening import Servable, served
from sncl.serving.page import page, page_policy
from sncl.serving.refusals import RequestRefused
from sncl.serving.requests import learn_request, predict_request
from sncl.serving.schema import LEARN, LEARNED, PREDICT, PREDICTED, described
from sncl.serving.service import Service

MAX_BODY, MAX_ROWS, QUEUE, PENDING = 8 * 2**20, 10_000, 256, 100_000
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    model: Servable,
    *,
    snapshot: str | Path | None = None,
    every: int | None = None,
    seconds: float = USUAL.seconds,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    max_body: int = MAX_BODY,
    max_rows: int = MAX_ROWS,
    queue: int = QUEUE,
    pending: int = PENDING,
    say: Callable[[str], None] = print,
) -> FastAPI:
    """An ASGI application that predicts with an estimator or a learner while it learns.

    ``snapshot`` is a file that keeps what was learned, with a journal beside it; if it exists, the application goes on
    from there, and without one nothing is kept. The journal is written through to the disk behind ``every`` so many
    requests to learn (1: before each answer), and snapshots are written after so many ``seconds``. With a ``token``
    only requests that bear it are answered; without one, those to names of this machine and to ``hosts``. ``queue``
    is how many requests may wait to be learned, ``pending`` how many predictions for their labels. ``say`` is told
    what goes wrong in the background.
    """
    durability = Durability(every, seconds)
    durability.check()
    for name, value in (("max_body", max_body), ("max_rows", max_rows), ("queue", queue), ("pending", pending)):
        if value < 1:
            raise SnclError(f"`{name}` is at least 1, not {value}")
    path = None if snapshot is None else Path(snapshot)
    service = Service(served(model), path, durability, queue=queue, pending=pending, say=say)
    access = Access(token, frozenset(LOCAL | {host.lower() for host in hosts}), max_body, 2 * queue)
    return application(service, access, max_rows)


def application(service: Service, access: Access, max_rows: int) -> FastAPI:
    """The routes, and how errors become answers."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.close)

    counts = RequestCounts()
    title, version = "sncl serve", sncl.__version__
    app = FastAPI(title=title, version=version, docs_url=None, redoc_url=None, lifespan=living)
    app.state.service = service
    app.add_middleware(Guard, access=access, counts=counts)
    app.add_exception_handler(RequestRefused, _refused)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _failed)

    @app.post("/predict", summary="Predict rows", openapi_extra=described(PREDICT, PREDICTED))
    async def predict(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(lambda: _json(service.predict(predict_request(body, max_rows))))

    @app.post("/learn", summary="Learn labels of rows or of predictions", openapi_extra=described(LEARN, LEARNED))
    async def learn(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(lambda: _json(service.learn(learn_request(body, max_rows))))

    @app.get("/metrics", summary="Numbers for Prometheus")
    async def metrics() -> Response:
        return Response(await run_in_threadpool(metrics_text, service, counts), media_type=TEXT)

    @app.get("/healthz", summary="Whether it learns and keeps")
    async def healthz() -> Response:
        service.check()
        return _json({"status": "ok"})

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(access.token is not None), headers={"Content-Security-Policy": page_policy()})

    return app


def _json(value: dict[str, Any]) -> Response:
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return refusal(error)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(sorted(ROUTES))
    words = {404: f"there is nothing here; there is {known}", 405: "another method is allowed here, see Allow"}
    text = words.get(error.status_code, str(error.detail))
    return JSONResponse({"error": text}, error.status_code, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the server failed; its log says more"}, 500)
