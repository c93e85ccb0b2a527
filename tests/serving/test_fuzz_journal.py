"""A damaged journal or snapshot of a server is read as far as it is whole, or refused in one line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from servers import DIGITS, LABELS, small_model

from sncl.serving.estimators import ServedEstimator
from sncl.serving.journal import read_records, segment_path, segments
from sncl.serving.ledger import Ledger
from sncl.serving.requests import LearnRequest, PredictRequest
from sncl.serving.service import Service
from sncl.serving.storage import SnapshotFile


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A snapshot with predictions that wait, and the journal behind it."""
    path = tmp_path_factory.mktemp("server") / "model.safetensors"
    service = Service(ServedEstimator(small_model()), path)
    for number in range(3):
        service.predict(PredictRequest(DIGITS[:2].tolist(), ids=[f"{number}-0", f"{number}-1"]))
        service.learn(LearnRequest(LABELS[:2].tolist(), rows=DIGITS[:2].tolist()))
    (journal,) = segments(path)
    written = journal.read_bytes()
    service.start()
    service.close()
    return path.read_bytes(), written


@FUZZ
@given(st.data())
def test_journal(files: tuple[bytes, bytes], tmp_path: Path, data: st.DataObject) -> None:
    path = fresh(tmp_path)
    segment_path(path, 1).write_bytes(data.draw(mutants([files[1]])))
    records = read_or_refused(lambda: list(read_records(path, 0)))
    if records is not None:
        assert [record["number"] for record in records] == [*range(1, len(records) + 1)]
        assert len(records) <= 6 and all(record["rows"] == DIGITS[:2].tolist() for record in records)


class _NoModel(ServedEstimator):
    """The reader of a model has its own tests."""

    def restore(self, path: Path) -> None:
        pass


@FUZZ
@given(st.data())
def test_snapshot(files: tuple[bytes, bytes], tmp_path: Path, data: st.DataObject) -> None:
    path = fresh(tmp_path)
    path.write_bytes(data.draw(mutants([files[0]])))
    ledger, file = Ledger(100), SnapshotFile(path)
    model: Any = None
    found = read_or_refused(lambda: file.restore(_NoModel(model), ledger))
    file.release()
    if found is not None:
        assert found == (6, 6) and len(ledger.waiting) == 6
