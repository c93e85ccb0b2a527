"""How the user's data were understood is known beside their runs, for these options and unchanged files only."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import user_files as files

import sncl
from sncl.runs.choosing import Chosen, choose
from sncl.runs.understood import place_of, recall
from sncl.streams.user.spec import DataSpec, parse_spec
from sncl.training.checkpoint import sealed, unsealed


@pytest.fixture(autouse=True)
def young_files_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sncl.streams.user.stamp.SETTLED", 0)


@pytest.fixture
def spec(tmp_path: Path) -> DataSpec:
    found = parse_spec(str(files.save_table(tmp_path / "flowers.csv")))
    assert found is not None
    return found


def remembered(spec: DataSpec, folder: Path) -> Chosen:
    chosen = choose("", spec, {})
    folder.mkdir(exist_ok=True)
    chosen.remember(folder)
    return chosen


def test_what_was_written_down_is_what_reading_tells(spec: DataSpec, tmp_path: Path) -> None:
    chosen = remembered(spec, tmp_path / "runs")
    found = recall(tmp_path / "runs", spec)
    assert found is not None and found == chosen.understood
    assert choose("", spec, {}, beside=tmp_path / "runs") == chosen


def test_other_options_other_places_and_other_versions_are_read(
    spec: DataSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered(spec, tmp_path / "runs")
    for other in (replace(spec, cut="classes"), replace(spec, target="kind"), replace(spec, ignore=("soil",))):
        assert recall(tmp_path / "runs", other) is None
    assert recall(tmp_path, spec) is None
    assert recall(tmp_path / "runs", spec) is not None
    monkeypatch.setattr(sncl, "__version__", "0.3")
    assert recall(tmp_path / "runs", spec) is None


def test_changed_files_are_read(spec: DataSpec, tmp_path: Path) -> None:
    remembered(spec, tmp_path / "runs")
    content = spec.path.read_bytes()
    spec.path.write_bytes(content.replace(b"5.1,", b"5.2,", 1))
    assert recall(tmp_path / "runs", spec) is None
    before = choose("", spec, {}, beside=tmp_path / "runs")
    assert before.user_data == remembered(spec, tmp_path / "runs").user_data
    os.utime(spec.path)
    assert recall(tmp_path / "runs", spec) is None


def test_files_that_change_while_they_are_read_are_not_remembered(spec: DataSpec, tmp_path: Path) -> None:
    chosen = choose("", spec, {})
    spec.path.write_bytes(spec.path.read_bytes().replace(b"5.1,", b"5.2,", 1))
    chosen.remember(tmp_path)
    assert not place_of(tmp_path, spec).exists()


def test_without_runs_nothing_is_written(spec: DataSpec, tmp_path: Path) -> None:
    choose("", spec, {}).remember(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    choose("seq-digits", None, {}).remember(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["flowers.csv"]


@pytest.mark.parametrize("damage", ["cut", "changed", "no seal", "another kind"])
def test_a_damaged_file_is_as_good_as_none(spec: DataSpec, tmp_path: Path, damage: str) -> None:
    remembered(spec, tmp_path / "runs")
    path = place_of(tmp_path / "runs", spec)
    text, facts = path.read_text(), json.loads(path.read_text())
    assert recall(tmp_path / "runs", spec) is not None
    path.write_text(
        {
            "cut": text[:-20],
            "changed": text.replace('"rows": 120', '"rows": 121'),
            "no seal": json.dumps(unsealed(facts)),
            "another kind": json.dumps(sealed({"files": facts["files"], "user_data": {}, "notes": []})),
        }[damage]
    )
    assert recall(tmp_path / "runs", spec) is None
