"""Damaged files of runs are read or refused; what is read can be written and shown."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.runs.experiment import EXPERIMENT, PREPROCESSING, decision, read_described
from sncl.runs.loading import read_stored
from sncl.runs.models import stored_preprocessing
from sncl.runs.result import RESULT, Result, read_result
from sncl.streams.preprocessing import Preprocessing
from sncl.training.checkpoint import sealed, unsealed


def with_and_without_checksum(path: Path) -> list[bytes]:
    """The content as it is, which changes must not get past, and as early versions wrote it."""
    content = path.read_bytes()
    return [content, json.dumps(unsealed(json.loads(content)), indent=2).encode()]


@FUZZ
@given(st.data())
def test_result(runs: Path, tmp_path: Path, data: st.DataObject) -> None:
    path = fresh(tmp_path, ".json")
    path.write_bytes(data.draw(mutants(with_and_without_checksum(runs / "sncl-0" / RESULT))))
    result = read_or_refused(lambda: read_result(path))
    if result is not None:
        assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
        f"{result.main.accuracy:.2f} {result.seconds:.1f} {result.memory:,d}"
    path.unlink()


@FUZZ
@given(st.data())
def test_experiment(runs: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = fresh(tmp_path)
    folder.mkdir()
    (folder / EXPERIMENT).write_bytes(data.draw(mutants(with_and_without_checksum(runs / "sncl-0" / EXPERIMENT))))
    described = read_or_refused(lambda: read_described(folder))
    if described is not None:
        assert decision(described)
        assert isinstance(described["memory"], int)


@FUZZ
@given(st.data())
def test_preprocessing(runs: Path, tmp_path: Path, data: st.DataObject) -> None:
    """A change is refused by the checksum; made with a checksum of its own, it is read as something or refused."""
    whole = runs / "sncl-0" / PREPROCESSING
    experiment = read_stored(runs / "sncl-0").experiment
    folder = fresh(tmp_path)
    folder.mkdir()
    content = data.draw(mutants(with_and_without_checksum(whole)))
    (folder / PREPROCESSING).write_bytes(content)
    found = read_or_refused(lambda: stored_preprocessing(folder, experiment))
    if found is not None:
        assert found.to_json() == unsealed(json.loads(whole.read_text()))
    try:
        facts = unsealed(json.loads(content))
    except (ValueError, RecursionError):
        return
    (folder / PREPROCESSING).write_text(json.dumps(sealed(facts) if isinstance(facts, dict) else facts))
    again = read_or_refused(lambda: stored_preprocessing(folder, experiment))
    assert again is None or isinstance(again, Preprocessing)
