"""A model in use: predictions that never wait, and learning in the order of acknowledgement.

Each acknowledged request that changes something is a numbered record of the journal. One thread learns them in that
order. A prediction is made by a view of the model between two steps and is noted as it was made, so that the journal
leads to the same state again, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from threading import Condition, Event, Thread
from typing import Any

from sncl.errors import SnclError
from sncl.serving.durability import USUAL, Durability
from sncl.serving.journal import RequestJournal
from sncl.serving.ledger import Ledger
from sncl.serving.lessons import Lesson, Mark, Teacher
from sncl.serving.models import ServedModel
from sncl.serving.refusals import RequestRefused
from sncl.serving.requests import LearnRequest, PredictRequest
from sncl.serving.storage import ServerState, SnapshotFile

PATIENCE = 10.0  # seconds for what waits to be learned when the server ends; the journal keeps the rest
JOURNAL_BYTES = 64 * 2**20  # a longer one is put into a snapshot before its time


class Service:
    """The model, its ledger and its journal. Without a file nothing is kept."""

    def __init__(
        self,
        model: ServedModel,
        snapshot: Path | None = None,
        durability: Durability = USUAL,
        *,
        queue: int = 256,
        pending: int = 100_000,
        say: Callable[[str], None] = print,
    ) -> None:
        self.durability, self.most_waiting, self.say = durability, queue, say
        self.ledger = Ledger(pending)
        self.replayed = 0  # requests of the journal
        self.run = token_hex(4)  # in every id: those that a process lost are never given again
        self.queue: deque[Lesson | Mark] = deque()
        self.changed = Condition()  # guards the ledger, the queue and the order of the journal
        self.closing = Event()
        self.unsynced = 0  # requests to learn that the disk may not have yet
        self.storing = False
        self.stored_at, self.stored = time.monotonic(), 0
        self.threads: list[Thread] = []
        self.writers: list[Thread] = []  # one at most
        self.journal: RequestJournal | None = None
        self.file = None if snapshot is None else SnapshotFile(snapshot)
        try:
            self.teacher = Teacher(model, say)
            self._begin()
            self.teacher.look()
        except BaseException:
            self._release()
            raise

    # --- beginning and ending

    def _begin(self) -> None:
        """Restore the snapshot, learn what the journal holds behind it, and store that."""
        if self.file is None:
            return
        number, self.teacher.learned = self.file.restore(self.teacher.model, self.ledger)
        for record in self.file.records(number):
            number = record["number"]
            self._repeat(record)
            self.replayed += 1
        self._store(self._state(self.ledger, number))
        self.journal = RequestJournal(self.file.path, number)

    def _repeat(self, record: dict[str, Any]) -> None:
        number = record["number"]
        try:
            if "predictions" in record:
                self.ledger.add(record["ids"], record["rows"], record["predictions"])
                return
            labels = record["labels"]
            rows = record["rows"] if record["ids"] is None else self.ledger.take(record["ids"], labels)
        except (LookupError, TypeError, ValueError) as error:
            raise SnclError(f"record {number} of the journal fits no request ({error!r})") from error
        self.teacher.teach(rows, labels)
        if self.teacher.failed:
            raise SnclError(f"record {number} of the journal cannot be learned again: {self.teacher.failed}")

    def start(self) -> None:
        """Begin to learn."""
        self.threads = [Thread(target=each, daemon=True) for each in (self._work, self._watch)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Learn what waits, for some seconds, store a snapshot, and let others use its file."""
        limit = time.monotonic() + PATIENCE
        with self.changed:
            self.closing.set()
            self.changed.notify_all()
            while self.threads and self.queue and not self.teacher.failed and time.monotonic() < limit:
                self.changed.wait(0.1)
            whole = not self.queue and not self.teacher.failed
            self._let_go()
        for thread in [*self.threads, *self.writers]:
            thread.join()
        try:
            if self.journal is not None and whole and not self.journal.broken:
                self._store(self._state(self.ledger, self.journal.number))
        finally:
            self._release()

    def _release(self) -> None:
        if self.journal is not None:
            self.journal.close()
        if self.file is not None:
            self.file.release()

    # --- requests, from any thread

    def predict(self, request: PredictRequest) -> dict[str, Any]:
        """Answer with the view there is, and keep the answer until its label comes."""
        view = self.teacher.view
        predictions, probabilities = view.predict(request.rows)
        answer: dict[str, Any] = {"predictions": predictions, "ids": []}
        if request.probabilities:
            answer |= {"classes": view.labels, "probabilities": probabilities.tolist()}
        with self.changed:
            if not request.keep:
                self.ledger.predicted += len(predictions)
                return answer
            first = self.ledger.predicted
            ids = answer["ids"] = request.ids or [f"{self.run}-{first + each}" for each in range(len(predictions))]
            self.ledger.check_new(ids)
            number = self._write({"ids": ids, "rows": request.rows, "predictions": predictions})
            self.ledger.add(ids, request.rows, predictions)
        self._wait_for_disk(number)
        return answer

    def learn(self, request: LearnRequest) -> dict[str, Any]:
        """Take a request into the queue; it is learned behind all that were acknowledged before."""
        view = self.teacher.view
        labels = view.checked_labels(request.labels)
        if request.rows is not None:
            view.predict(request.rows)  # what cannot be predicted could not be learned
        with self.changed:
            self.check()
            if len(self.queue) >= self.most_waiting:
                raise RequestRefused(503, f"{self.most_waiting} requests wait to be learned; send it again later")
            if request.ids is not None:
                self.ledger.check_waiting(request.ids)
            number = self._write({"ids": request.ids, "rows": request.rows, "labels": labels})
            rows = request.rows if request.ids is None else self.ledger.take(request.ids, labels)
            lesson = Lesson(number, rows or [], labels, request.wait, Event())
            self.queue.append(lesson)
            self.changed.notify_all()
            self._count_unsynced(number)
        self._wait_for_disk(number)
        if request.wait:
            lesson.done.wait()
            self.check()
        return {"learned": len(labels), "number": number}

    def check(self) -> None:
        """Refuse where nothing can be learned or kept any more."""
        if self.teacher.failed:
            raise RequestRefused(503, f"nothing is learned any more: {self.teacher.failed}")
        if self.journal is not None:
            self.journal.check()

    def _write(self, record: dict[str, Any]) -> int:
        return 0 if self.journal is None else self.journal.append(record)

    def _count_unsynced(self, number: int) -> None:
        """Never more of them than was promised."""
        self.unsynced += 1
        every = self.durability.every or math.inf
        if self.journal is not None and self.unsynced >= every > 1:
            self.journal.sync(number)
            self.unsynced = 0

    def _wait_for_disk(self, number: int) -> None:
        if self.journal is not None and self.durability.every == 1:
            self.journal.sync(number)  # outside the lock: those who come together share one write

    # --- learning, in a thread of its own

    def _work(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, Mark):
                self._take(item)
            else:
                self.teacher.teach(item.rows, item.labels)
                self.teacher.show(later=len(self.queue) > 1 and not item.wait)
                item.done.set()
            with self.changed:
                if self.queue and self.queue[0] is item:
                    self.queue.popleft()
                if self.teacher.failed:
                    self._let_go()
                self.changed.notify_all()

    def _next(self) -> Lesson | Mark | None:
        with self.changed:
            while not self.queue and not self.closing.is_set():
                self.changed.wait()
            return self.queue[0] if self.queue and not self.teacher.failed else None

    def _let_go(self) -> None:
        """Empty the queue; whoever waits for a lesson is told why it is not learned."""
        for item in self.queue:
            if isinstance(item, Lesson):
                item.done.set()
        self.queue.clear()

    # --- snapshots, in the background

    def _watch(self) -> None:
        pause = min(self.durability.seconds / 2, 1.0)
        while self.journal is not None and not self.closing.wait(pause):
            try:
                self.journal.sync(self.journal.number)
                late = time.monotonic() - self.stored_at >= self.durability.seconds
                if (late or self.journal.bytes > JOURNAL_BYTES) and self.journal.number > self.stored:
                    self.mark()
            except SnclError as error:
                self.say(str(error))

    def mark(self) -> None:
        """Have a snapshot taken behind all that is acknowledged now."""
        with self.changed:
            if self.journal is None or self.storing or self.teacher.failed:
                return
            self.journal.rotate()
            self.unsynced = 0
            self.storing = True
            self.queue.append(Mark(self.journal.number, self.ledger.copy()))
            self.changed.notify_all()

    def _take(self, mark: Mark) -> None:
        try:
            state = self._state(mark.ledger, mark.number)
        except SnclError as error:  # weights that are no numbers any more
            self.teacher.fail(str(error))
            return
        self.writers = [Thread(target=self._store_later, args=(state,))]
        self.writers[0].start()

    def _store_later(self, state: ServerState) -> None:
        try:
            self._store(state)
        except (SnclError, OSError) as error:
            self.say(str(error))
        finally:
            with self.changed:
                self.storing = False
                self.changed.notify_all()

    def _state(self, ledger: Ledger, number: int) -> ServerState:
        tensors, description = self.teacher.model.state()
        return ServerState(tensors, description, ledger, number, self.teacher.learned)

    def _store(self, state: ServerState) -> None:
        self.stored_at = time.monotonic()
        if self.file is not None:
            self.file.write(state)
            self.stored = state.number
