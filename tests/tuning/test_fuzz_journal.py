"""A damaged journal of a study is opened, with trials that can be shown, or refused in one line."""

import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from studies import short

from sncl.tuning.study import Study, StudyJob
from sncl.tuning.trial import Trial, ranking


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    job = StudyJob(short(), folder / "study.journal", folder / "study.toml", 2)
    Study(job).work(lambda standing: None)
    return job.storage


@settings(FUZZ, max_examples=FUZZ.max_examples // 2)
@given(st.data())
def test_journal(journal: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = fresh(tmp_path)
    folder.mkdir()
    path = folder / "study.journal"
    path.write_bytes(data.draw(mutants([journal.read_bytes()])))
    assert not FileLock(folder / "study.journal.lock").is_locked

    def opened() -> list[Trial]:
        study = Study(StudyJob(short(), path, folder / "study.toml", 2))
        study.standing()
        return study.close()

    trials = read_or_refused(opened)
    if trials is not None:
        assert all(isinstance(trial.shown(), str) for trial in ranking(trials))
    shutil.rmtree(folder)
