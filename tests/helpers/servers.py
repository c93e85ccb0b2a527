"""Servers of ``sncl serve`` as real processes, and a client that speaks plain HTTP."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
import uvicorn
from sklearn.datasets import load_digits

from sncl import SNCLClassifier

DIGITS, LABELS = load_digits(return_X_y=True)


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    text: str
    headers: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.usual = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None) -> Reply:
        self.connection.request(method, path, body, self.usual | (headers or {}))
        answer = self.connection.getresponse()
        return Reply(answer.status, answer.read().decode(), {name.lower(): each for name, each in answer.getheaders()})

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels."""
        return parse_metrics(self.get("/metrics").text)


class Server:
    """A process that listens; what it said first is in ``words``."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-W", "error", "-m", "sncl.cli", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.words: list[str] = []
        self.clients: list[Client] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.words.append(line.strip())
            if found := re.match(r"http://[^:]+:(\d+)", line):
                self.port = int(found[1])
                return
        self.kill()
        raise AssertionError(self.words)

    def client(self, token: str | None = None) -> Client:
        """A connection that is closed with the server."""
        self.clients.append(Client(self.port, token))
        return self.clients[-1]

    def kill(self) -> None:
        """As kill -9 does."""
        self.process.kill()
        self.process.communicate()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> str:
        """End it as a user does: what it said at last; an error if it did not end well."""
        self.process.send_signal(by)
        _, last = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, last
        return last

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stderr is not None
        self.process.stderr.close()
        for client in self.clients:
            client.connection.close()


class _Quiet(uvicorn.Server):
    """A server in a thread, where there are no signals."""

    port = 0

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]


@contextmanager
def running(app: Any) -> Iterator[int]:
    """An application in this process: its port."""
    server = _Quiet(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield server.port
    finally:
        server.should_exit = True
        thread.join()


SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? (-?[0-9.e+-]+|\+Inf|NaN)')


def parse_metrics(text: str) -> dict[str, float]:
    """The text format as its specification has it: HELP, TYPE, then the samples of that metric and of no other."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    name = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in kinds
        elif line.startswith("# TYPE "):
            _, _, typed, kind = line.split(" ")
            assert typed == name and kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            endings = ("_bucket", "_sum", "_count") if kinds[name] == "histogram" else ("",)
            assert sample[1] in [name + ending for ending in endings], line
            key = sample[1] + (f"{{{sample[2]}}}" if sample[2] else "")
            assert key not in found
            found[key] = float(sample[3])
    return found


def small_model(rows: int = 100) -> SNCLClassifier:
    """An estimator that knows the digits 0 to 4."""
    first = LABELS < 5
    model = SNCLClassifier(memory=50, replay=8, hidden=(16,), random_state=0)
    return model.partial_fit(DIGITS[first][:rows], LABELS[first][:rows])


def same_state(one: Any, other: Any) -> bool:
    """Whether two estimators are the same, bit for bit."""
    (tensors, told), (others, also) = one.state(), other.state()
    return (
        told["classes"] == also["classes"]
        and told["learner"] == also["learner"]
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    )


def repeat(model: Any, lessons: Sequence[tuple[Any, Any]]) -> Any:
    """The model after these lessons, each (rows, labels)."""
    for rows, labels in lessons:
        model.partial_fit(np.asarray(rows, dtype=float), np.asarray(labels))
    return model
