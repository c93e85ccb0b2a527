"""The example that learns from Redis Streams, against a real server: kill -9 of either side changes nothing."""

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

import sncl
from sncl.training.checkpoint import read_checkpoint

redis = pytest.importorskip("redis")
PROGRAM = shutil.which("redis-server")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs redis-server")
EXAMPLE = Path(__file__).parents[2] / "examples" / "redis_stream.py"
CLASSES, FEATURES, ROWS, LAG = 3, 5, 4, 3


class RedisServer:
    """A server on a socket in a folder of its own, which keeps everything it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "redis.sock"
        self.start()

    def start(self) -> None:
        kept = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        where = ("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder))
        self.process = subprocess.Popen([str(PROGRAM), *where, *kept], stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)
        while True:
            try:
                self.client.ping()
                return
            except redis.exceptions.ConnectionError:
                assert self.process.poll() is None
                time.sleep(0.02)

    def kill(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    def unacknowledged(self) -> list[int]:
        return [self.client.xpending(name, "sncl")["pending"] for name in ("rows", "labels")]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with TemporaryDirectory(prefix="sncl-redis-") as folder:  # the name of a socket must be short
        started = RedisServer(Path(folder))
        yield started
        started.kill()


def batch(number: int) -> tuple[list[str], list[list[float]], list[int]]:
    """The ids, rows and labels of one entry."""
    drawn = torch.Generator().manual_seed(number)
    y = torch.randint(CLASSES, (ROWS,), generator=drawn)
    x = torch.randn(ROWS, FEATURES, generator=drawn) + 2 * y[:, None]
    return [f"{number}-{row}" for row in range(ROWS)], x.tolist(), y.tolist()


def send(server: RedisServer, first: int, last: int, end: bool = False) -> None:
    """Entries of rows, with labels that lag behind; at the end the last labels, too."""
    for number in range(first, last + (LAG if end else 0)):
        if number < last:
            ids, x, _ = batch(number)
            server.client.xadd("rows", {"ids": json.dumps(ids), "x": json.dumps(x)})
        if number >= LAG:
            ids, _, y = batch(number - LAG)
            server.client.xadd("labels", {"ids": json.dumps(ids), "y": json.dumps(y)})


def started(server: RedisServer, snapshot: Path, patience: float) -> subprocess.Popen[str]:
    arguments = ("--classes", str(CLASSES), "--snapshot", str(snapshot), "--patience", str(patience), "--every", "4")
    command = [sys.executable, "-W", "error", str(EXAMPLE), f"unix://{server.socket}", *arguments]
    process = subprocess.Popen(
        [*command, "--width", "16", "--memory", "20", "--predictions", "predictions"], stdout=subprocess.PIPE, text=True
    )
    return process


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert all(found), found
    return found


def example() -> Any:
    spec = importlib.util.spec_from_file_location("redis_stream", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kill_9_of_either_side_loses_nothing_and_learns_nothing_twice(server: RedisServer, tmp_path: Path) -> None:
    snapshot, batches = tmp_path / "learner.safetensors", 40
    send(server, 0, 20)
    server.client.xadd("rows", {"ids": "[", "x": "no JSON"})  # passed over, and not for ever
    with started(server, snapshot, patience=60) as first:
        lines(first, 22)
        first.kill()
    stored = read_checkpoint(snapshot)[1]["follow"]["position"]
    assert stored[0] >= 20 and sum(server.unacknowledged()) > 0
    order = example().order
    for name in ("rows", "labels"):  # what is acknowledged is in the snapshot
        waiting = {each["message_id"] for each in server.client.xpending_range(name, "sncl", "-", "+", 1000)}
        (group,) = server.client.xinfo_groups(name)
        delivered = [entry for entry, _ in server.client.xrange(name, max=group["last-delivered-id"])]
        acknowledged = [entry for entry in delivered if entry not in waiting]
        assert acknowledged and all(order(entry) <= order(stored[2][name]) for entry in acknowledged)

    with started(server, snapshot, patience=6) as second:
        lines(second, 5)
        server.kill()
        server.start()
        send(server, 20, batches, end=True)
        assert second.stdout is not None
        said = second.stdout.read().splitlines()
    assert second.returncode == 0 and ", 0 rows wait, 0 labels without a row" in said[-1]
    assert server.unacknowledged() == [0, 0]
    followed = read_checkpoint(snapshot)[1]["follow"]
    assert followed["position"][0] == 2 * batches + 1 and followed["score"][0] == ROWS * batches

    found, by_hand = (example().make_learner(FEATURES, CLASSES, memory=20, width=16) for _ in range(2))
    found.load(snapshot)
    parts = [batch(number) for number in range(batches)]
    asked = [sncl.Item(torch.tensor(x), ids=ids) for ids, x, _ in parts]
    for answer in sncl.follow(by_hand, [*asked, *(sncl.Late(ids, y) for ids, _, y in parts)]):
        assert answer.refused is None
    assert by_hand.steps == found.steps == batches
    theirs = found.state()
    assert all(torch.equal(value, theirs[name]) for name, value in by_hand.state().items())
    told = {fields["entry"] for _, fields in server.client.xrange("predictions")}
    assert told == {entry for entry, _ in server.client.xrange("rows")}  # each at least once
