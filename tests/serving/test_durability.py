"""kill -9 under load, power failures, damaged files: nothing promised is lost, and nothing is learned twice."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import pytest
from servers import DIGITS, LABELS, Server, repeat, same_state, small_model

from sncl import SNCLClassifier
from sncl.errors import SnclError
from sncl.serving.durability import Durability
from sncl.serving.estimators import ServedEstimator
from sncl.serving.journal import read_records, segments
from sncl.serving.refusals import RequestRefused
from sncl.serving.requests import LearnRequest, PredictRequest
from sncl.serving.service import Service

CLIENTS, REQUESTS = 8, 1000


class Load:
    """Clients that mix predictions, late labels and labelled rows, and note what was acknowledged."""

    def __init__(self, server: Server, kill_after: int) -> None:
        self.server, self.kill_after = server, kill_after
        self.lock = Lock()
        self.sent = self.answered = 0
        self.rows: dict[str, int] = {}  # id -> row of the digits
        self.predicted: dict[str, int] = {}
        self.lessons: dict[int, tuple[list[int], list[int]]] = {}  # number -> rows, labels
        self.labelled: list[str] = []
        self.full = 0  # 503: the queue was full
        self.wrong: list[Any] = []

    def run(self) -> None:
        threads = [Thread(target=self.work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, seed: int) -> None:
        draw, client, own = random.Random(seed), self.server.client(), []
        try:
            while self.next():
                kind = draw.random()
                rows = [draw.randrange(len(DIGITS)) for _ in range(draw.randint(1, 4))]
                if kind < 0.5:
                    own += self.predict(client, rows)
                elif kind < 0.8 and own:
                    self.learn(client, None, [own.pop(draw.randrange(len(own))) for _ in range(min(len(own), 3))], own)
                else:
                    self.learn(client, rows, [], own)
        except OSError:  # the server was killed
            pass

    def next(self) -> bool:
        with self.lock:
            self.sent += 1
            if self.answered >= self.kill_after:
                self.server.process.kill()
            return self.sent <= REQUESTS

    def predict(self, client: Any, rows: list[int]) -> list[str]:
        answer = client.post("/predict", {"rows": DIGITS[rows].tolist()})
        with self.lock:
            self.answered += 1
            if answer.status != 200:
                self.wrong.append(answer)
                return []
            ids = answer.json()["ids"]
            self.rows.update(zip(ids, rows, strict=True))
            self.predicted.update(zip(ids, answer.json()["predictions"], strict=True))
            return list(ids)

    def learn(self, client: Any, rows: list[int] | None, ids: list[str], own: list[str]) -> None:
        with self.lock:
            rows = [self.rows[each] for each in ids] if rows is None else rows
        labels = LABELS[rows].tolist()
        given = {"ids": ids} if ids else {"rows": DIGITS[rows].tolist()}
        answer = client.post("/learn", given | {"labels": labels})
        with self.lock:
            self.answered += 1
            if answer.status == 503:
                self.full += 1
                own += ids
                assert answer.headers["retry-after"] == "1"
            elif answer.status == 200:
                self.lessons[answer.json()["number"]] = (rows, labels)
                self.labelled += ids
            else:
                self.wrong.append(answer)


def test_nothing_acknowledged_is_lost_under_load_and_kill_9(tmp_path: Path) -> None:
    """Killed among 1,000 requests of 8 clients, with snapshots in between: the state is that of a single thread which
    learns what was acknowledged in that order, bit for bit, with the requests at most that were never answered."""
    small_model().save(tmp_path / "digits.safetensors")
    snapshot = tmp_path / "digits.serving.safetensors"
    command = (tmp_path / "digits.safetensors", "--every", "1", "--seconds", "0.5", "--queue", "100")
    with Server(*command) as server:
        load = Load(server, kill_after=850)
        load.run()
    assert not load.wrong and load.answered >= 850
    left = {
        record["number"]: record for record in read_records(snapshot, 0 if not snapshot.exists() else stored(snapshot))
    }
    rows = dict(load.rows)
    unanswered = 0
    for number, record in left.items():  # the last requests may be kept although nobody was told
        if "predictions" in record:
            unanswered += record["ids"][0] not in rows
            continue
        if number not in load.lessons:
            unanswered += 1
            found = record["rows"] or [DIGITS[rows[each]].tolist() for each in record["ids"]]
            load.lessons[number] = (found, record["labels"])
            load.labelled += record["ids"] or []
    assert unanswered <= CLIENTS
    lessons = [load.lessons[number] for number in sorted(load.lessons)]
    model = repeat(small_model(), [(raw(rows), labels) for rows, labels in lessons])

    with Server(*command) as server:
        assert f"goes on from {snapshot}" in server.words[0]
        metrics = server.client().metrics()
        assert metrics["sncl_rows_learned_total"] == sum(len(labels) for _, labels in lessons)
        assert metrics["sncl_labelled_predictions_total"] == len(load.labelled)
        right = sum(load.predicted[each] == LABELS[load.rows[each]] for each in load.labelled)
        assert metrics["sncl_right_predictions_total"] == right
        waiting = set(load.rows) - set(load.labelled)
        assert len(waiting) <= metrics["sncl_pending_predictions"] <= len(waiting) + 4 * CLIENTS
        some = sorted(waiting)[:5]  # predictions that were answered before the kill can be labelled after it
        labels = [int(LABELS[load.rows[each]]) for each in some]
        assert server.client().post("/learn", {"ids": some, "labels": labels}).status == 200
        assert f"stored: {snapshot}" in server.stop(signal.SIGINT)
    model = repeat(model, [(raw([load.rows[each] for each in some]), labels)])
    assert same_state(SNCLClassifier.load(snapshot), model)


def raw(rows: list[Any]) -> Any:
    return np.asarray(rows, dtype=float) if isinstance(rows[0], list) else DIGITS[rows]


def stored(snapshot: Path) -> int:
    from sncl.training.checkpoint import read_checkpoint

    return int(read_checkpoint(snapshot)[1]["serving"]["number"])


# --- one service, without a network ----------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """Make services, which are closed in the end."""
    services: list[Service] = []

    def make(path: Path | None = tmp_path / "model.safetensors", started: bool = True, **options: Any) -> Service:
        durability = options.pop("durability", Durability(seconds=3600))
        service = Service(ServedEstimator(small_model()), path, durability, say=said.append, **options)
        services.append(service)
        if started:
            service.start()
        return service

    said: list[str] = []
    yield make
    for service in services:
        if not service.closing.is_set():
            service.close()


def lesson(start: int, wait: bool = False) -> LearnRequest:
    part = slice(start, start + 3)
    return LearnRequest(LABELS[part].tolist(), rows=DIGITS[part].tolist(), wait=wait)


def after(*starts: int) -> SNCLClassifier:
    parts = [slice(start, start + 3) for start in starts]
    return repeat(small_model(), [(DIGITS[part], LABELS[part]) for part in parts])


def model_of(service: Service) -> Any:
    model = service.teacher.model
    assert isinstance(model, ServedEstimator)
    return model.model


def crashed(folder: Path, target: Path, synced_only: bool, service: Service) -> Path:
    """The files as a kill leaves them, or a power failure: without what was not written through to the disk."""
    copied = False
    while not copied:
        try:
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.lock"))
            copied = True
        except shutil.Error:  # a snapshot came, and a file went, while the others were copied: no kill leaves that
            shutil.rmtree(target)
    if synced_only:
        (last,) = segments(target / "model.safetensors")[-1:]
        lines = last.read_bytes().splitlines(keepends=True)
        assert service.journal is not None
        kept = len(lines) - (service.journal.number - service.journal.synced)
        last.write_bytes(b"".join(lines[:kept]))
    return target / "model.safetensors"


@pytest.mark.parametrize(("every", "most"), [(None, 4), (2, 1), (1, 0)])
def test_a_power_failure_loses_at_most_the_window(opened: Any, tmp_path: Path, every: int | None, most: int) -> None:
    folder = tmp_path / "before"
    service = opened(folder / "model.safetensors", durability=Durability(every, 3600), started=False)
    for number in range(4):
        service.learn(lesson(number))
        service.predict(PredictRequest(DIGITS[:1].tolist(), ids=[f"p{number}"]))
        lost = opened(crashed(folder, tmp_path / f"power-{number}", True, service), started=False)
        kept = len(lost.file.records(0)) + lost.replayed
        assert lost.teacher.learned >= 3 * (number + 1 - most), kept
        assert every != 1 or f"p{number}" in lost.ledger.waiting
        killed = opened(crashed(folder, tmp_path / f"kill-{number}", False, service), started=False)
        assert killed.teacher.learned == 3 * (number + 1) and f"p{number}" in killed.ledger.waiting
        assert same_state(model_of(killed), after(*range(number + 1)))


def test_snapshots_in_the_background_and_exactly_once(opened: Any, tmp_path: Path) -> None:
    folder = tmp_path / "before"
    service = opened(folder / "model.safetensors")
    for number in range(6):
        service.learn(lesson(number, wait=True))
        if number % 2:
            service.mark()
    copy = crashed(folder, tmp_path / "after", False, service)
    for again in range(2):  # killed again right behind the start
        killed = opened(copy, started=False)
        assert same_state(model_of(killed), after(*range(6))) and killed.teacher.learned == 18
        copy = crashed(tmp_path / "after", tmp_path / f"again-{again}", False, killed)
        killed.close()


def test_a_torn_record_is_left_out_and_damage_is_refused(opened: Any, tmp_path: Path) -> None:
    folder = tmp_path / "before"
    service = opened(folder / "model.safetensors", started=False)
    for number in range(3):
        service.learn(lesson(number))
    torn = crashed(folder, tmp_path / "torn", False, service)
    (journal,) = segments(torn)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    assert same_state(model_of(opened(torn, started=False)), after(0, 1))
    damaged = crashed(folder, tmp_path / "damaged", False, service)
    (journal,) = segments(damaged)
    journal.write_bytes(whole[:40] + b"x" + whole[41:])
    with pytest.raises(SnclError, match="damaged at byte 0, and 2 whole records follow"):
        opened(damaged, started=False)
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]))
    with pytest.raises(SnclError, match="and 1 is missing"):
        opened(damaged, started=False)


def test_a_full_queue_and_a_full_disk_refuse(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(started=False, queue=2)
    service.learn(lesson(0))
    service.learn(lesson(1))
    with pytest.raises(RequestRefused, match="2 requests wait to be learned") as full:
        service.learn(lesson(2))
    assert (full.value.status, full.value.headers) == (503, {"Retry-After": "1"})
    service.predict(PredictRequest(DIGITS[:1].tolist(), ids=["a"]))

    def no_room(file: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("sncl.serving.journal.os.write", no_room)
        with pytest.raises(RequestRefused, match="No space left"):
            service.predict(PredictRequest(DIGITS[:1].tolist(), ids=["b"]))
    assert list(service.ledger.waiting) == ["a"]
    for refused in (service.check, lambda: service.predict(PredictRequest(DIGITS[:1].tolist(), ids=["c"]))):
        with pytest.raises(RequestRefused, match="nothing can be kept any more"):
            refused()
    assert service.predict(PredictRequest(DIGITS[:1].tolist(), keep=False))["predictions"]  # still answers


def test_learning_that_fails_is_said_and_predictions_go_on(opened: Any) -> None:
    service = opened()
    service.learn(lesson(0, wait=True))
    before = service.predict(PredictRequest(DIGITS[:5].tolist(), keep=False))
    model_of(service).learner_.ready.net.body[0].weight.data.fill_(float("nan"))
    with pytest.raises(RequestRefused, match="nothing is learned any more"):
        service.learn(lesson(3, wait=True))
    assert service.predict(PredictRequest(DIGITS[:5].tolist(), keep=False)) == before
    with pytest.raises(RequestRefused, match="nothing is learned any more"):
        service.check()


def test_predictions_do_not_wait_for_learning(opened: Any) -> None:
    service = opened()
    with model_of(service).exclusively():  # as long as a step takes
        answers: list[Any] = []
        asking = Thread(target=lambda: answers.append(service.predict(PredictRequest(DIGITS[:5].tolist()))))
        asking.start()
        service.learn(lesson(0))
        asking.join(timeout=30)
        assert len(answers) == 1
