"""Learn from Redis Streams: rows on one stream, their labels later on another, and nothing is lost or learned twice.

    python examples/redis_stream.py redis://127.0.0.1:6379 --classes 10 --snapshot learner.safetensors

An entry is a batch, as JSON in its fields:

- on the stream `rows`: `ids`, one text or whole number for each row, and `x`, a list of rows of numbers;
- on the stream `labels`: `ids` of rows that came before, and `y`, one class (0, 1, 2, ...) for each of them.

    redis-cli XADD rows '*' ids '["a", "b"]' x '[[0.1, 0.2], [0.3, 0.4]]'
    redis-cli XADD labels '*' ids '["a", "b"]' y '[1, 0]'

Rows are predicted when they come and learned when their labels come; the prediction made then counts for the accuracy.
With --predictions NAME they are added to a stream of that name.

The snapshot holds the learner, the rows that wait for labels, and how far both streams have been read. Entries are
acknowledged (XACK) only when a snapshot holds them. After a crash of this process those behind the snapshot are read
again; those in it that were not acknowledged in time are acknowledged and passed over. After a crash of Redis
(`appendonly yes` and `appendfsync always` keep what it acknowledged) this process connects again and goes on.

Entries are taken in the order of their ids, which are times of the server, a label behind its row. Labels are learned
entry by entry in the order of their stream, so the result is the same, bit for bit, however often either side is
killed. The order is why one process at a time reads a group; the lock of the snapshot sees to that.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import redis
import torch
from redis.backoff import NoBackoff
from redis.retry import Retry

import sncl
from sncl.training.follow import Position

START = "0-0"
PAGE = 100  # entries of one read
AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, redis.exceptions.BusyLoadingError)
Value = TypeVar("Value")


def order(entry: str) -> tuple[int, int]:
    """The id of an entry as numbers: a time in milliseconds, and a count within it."""
    milliseconds, _, count = entry.partition("-")
    return int(milliseconds), int(count)


class Connection:
    """A server that may go away: calls are made again until it is back, or ``patience`` seconds are over."""

    def __init__(self, url: str, patience: float) -> None:
        # Not by the client itself: of a read that failed we must know, for its entries count as delivered.
        self.server = redis.Redis.from_url(url, decode_responses=True, socket_timeout=30, retry=Retry(NoBackoff(), 0))
        self.patience = patience

    def again(self, call: Callable[[], Value], lost: Callable[[], None] = lambda: None) -> Value:
        """What a call returns; ``lost`` is called behind each that failed."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return call()
            except AWAY:
                lost()
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)


class Entries:
    """The entries of one stream behind a place, in order, for one consumer of a group."""

    def __init__(self, connection: Connection, name: str, group: str, behind: str) -> None:
        self.connection, self.name, self.group = connection, name, group
        self.seen = behind
        self.delivered = True  # first what was delivered before, and is not acknowledged yet
        self.waiting: deque[tuple[str, dict[str, str]]] = deque()
        self.taken: list[str] = []  # and not acknowledged
        connection.again(self._make_group)
        self._acknowledge_stored()

    def _make_group(self) -> None:
        try:
            self.connection.server.xgroup_create(self.name, self.group, START, mkstream=True)
        except redis.exceptions.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _acknowledge_stored(self) -> None:
        """What the snapshot holds and nobody had the time to acknowledge."""
        behind = START
        while page := self._read(behind):
            stored = [entry for entry, _ in page if order(entry) <= order(self.seen)]
            self.acknowledge(stored)
            if len(stored) < len(page):
                return
            behind = page[-1][0]

    def acknowledge(self, entries: list[str]) -> None:
        """A snapshot holds these."""
        if entries:
            self.connection.again(lambda: self.connection.server.xack(self.name, self.group, *entries))

    def acknowledge_taken(self) -> None:
        """A snapshot holds all that was taken."""
        self.acknowledge(self.taken)
        self.taken = []

    def take(self) -> tuple[str, dict[str, Any]]:
        """The first entry and its fields, read as JSON; without fields where that cannot be done."""
        entry, fields = self.waiting.popleft()
        self.taken.append(entry)
        try:
            return entry, {name: json.loads(text) for name, text in fields.items()}
        except ValueError:
            return entry, {}

    def first(self, wait: float = 0.0) -> tuple[str, dict[str, str]] | None:
        """The next entry; None if there is none within so many seconds."""
        if not self.waiting:
            page = self._read(self.seen) if self.delivered else []
            if not page:
                self.delivered = False
                page = self._read(">", wait)
            fresh = [each for each in page if order(each[0]) > order(self.seen)]  # never twice
            self.waiting.extend(fresh)
            self.seen = page[-1][0] if page else self.seen
        return self.waiting[0] if self.waiting else None

    def _read(self, behind: str, wait: float = 0.0) -> list[tuple[str, dict[str, str]]]:
        block = max(int(1000 * wait), 1) if wait else None

        def read() -> Any:
            place = self.seen if self.delivered and behind == ">" else behind
            return self.connection.server.xreadgroup(self.group, "learner", {self.name: place}, PAGE, block)

        found = self.connection.again(read, lost=self._look_back)
        pages = found.values() if isinstance(found, dict) else [page for _, page in found or []]
        return [(str(entry), fields) for page in pages for entry, fields in _flat(page)]

    def _look_back(self) -> None:
        """An answer may be lost whose entries are delivered: they are read again first."""
        self.delivered = True


def _flat(page: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Entries of a page, which newer clients wrap once more."""
    for each in page:
        if isinstance(each, list):
            yield from _flat(each)
        elif each[1] is not None:  # an entry that was deleted since
            yield each


def source(rows: Entries, labels: Entries, patience: float) -> Iterator[sncl.Item | sncl.Late]:
    """Both streams in one order, until nothing has come for ``patience`` seconds."""
    token, idle_since = {rows.name: rows.seen, labels.name: labels.seen}, time.monotonic()
    while time.monotonic() - idle_since < patience:
        label = labels.waiting[0] if labels.waiting else None if rows.waiting else labels.first()
        row = rows.first(wait=0.0 if label else 0.1)  # read behind the label: its row is there
        if row is not None and (label is None or order(row[0]) <= order(label[0])):
            entry, fields = rows.take()
            token = token | {rows.name: entry}
            yield sncl.Item(as_rows(fields.get("x")), ids=fields.get("ids"), token=token)
        elif label is not None:
            entry, fields = labels.take()
            token = token | {labels.name: entry}
            yield sncl.Late(fields.get("ids"), fields.get("y"), token=token)
        else:
            continue
        idle_since = time.monotonic()


def as_rows(x: Any) -> torch.Tensor:
    """Rows of numbers; nothing that a learner takes, and so refused, where it is something else."""
    try:
        return torch.tensor(x, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        return torch.full((1, 1), torch.nan)


def make_learner(
    features: int, classes: int, method: str = "sncl", memory: int = 500, width: int = 100
) -> sncl.Learner:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(features, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, classes),
    )
    return sncl.Learner(net, method, memory=memory)


def number_of_features(connection: Connection, name: str) -> int:
    """How long a row is, when the first one is there."""
    while not (found := connection.again(lambda: connection.server.xrange(name, count=1))):
        time.sleep(0.1)
    return len(json.loads(found[0][1]["x"])[0])


def tell(connection: Connection, stream: str, fields: dict[str, str]) -> None:
    """Add an entry; where the answer is lost, a second time."""
    connection.again(lambda: connection.server.xadd(stream, fields))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="of the server: redis://HOST:PORT or unix:///PATH")
    parser.add_argument("--classes", type=int, required=True, help="how many classes there are")
    parser.add_argument("--rows", default="rows", help="the stream of rows")
    parser.add_argument("--labels", default="labels", help="the stream of labels")
    parser.add_argument("--group", default="sncl", help="the consumer group, one for each snapshot")
    parser.add_argument("--predictions", help="a stream for what is predicted")
    parser.add_argument("--snapshot", type=Path, default=Path("learner.safetensors"), help="where the learner is kept")
    parser.add_argument("--every", type=int, default=10, help="entries between snapshots")
    parser.add_argument("--pending", type=int, default=10_000, help="rows that may wait for labels")
    parser.add_argument("--method", default="sncl")
    parser.add_argument("--memory", type=int, default=500, help="samples that may be kept")
    parser.add_argument("--width", type=int, default=100, help="of the two hidden layers")
    parser.add_argument(
        "--patience", type=float, default=float("inf"), help="end after so many seconds without entries"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as Ctrl-C: what is learned is stored on the way out

    connection = Connection(options.url, options.patience)
    features = number_of_features(connection, options.rows)
    streams: list[Entries] = []

    def behind(position: Position) -> Iterator[sncl.Item | sncl.Late]:
        token = position.token or {}
        for name in (options.rows, options.labels):
            streams.append(Entries(connection, name, options.group, token.get(name, START)))
        return source(*streams, options.patience)

    learner = make_learner(features, options.classes, options.method, options.memory, options.width)
    rows = 0
    answers = sncl.follow(
        learner, behind, snapshot=options.snapshot, every=options.every, skip_bad=True, pending=options.pending
    )
    with closing(answers):
        for answer in answers:
            if answer.stored:
                for stream in streams:
                    stream.acknowledge_taken()
            if options.predictions and answer.position.rows > rows:
                entry = answer.position.token[options.rows]
                tell(connection, options.predictions, {"entry": entry, "predicted": str(answer.predicted.tolist())})
            rows = answer.position.rows
            score = "no labels yet" if answer.recent is None else f"{100 * answer.recent:.1f} % right lately"
            late = f"{answer.late.waiting} rows wait, {answer.late.unmatched} labels without a row"
            print(f"{answer.position.batches}: {answer.refused or score}, {late}", flush=True)
    for stream in streams:  # the end has stored them
        stream.acknowledge_taken()


if __name__ == "__main__":
    try:
        main()
    except sncl.SnclError as error:
        sys.exit(f"error: {error}")
    except AWAY as error:
        sys.exit(f"error: Redis is away: {error}")
    except KeyboardInterrupt:
        pass
