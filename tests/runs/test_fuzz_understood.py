"""A damaged account of the user's data says nothing, or what the whole one says."""

from pathlib import Path

import pytest
import user_files as files
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, mutants, read_or_refused

from sncl.runs.choosing import choose
from sncl.runs.understood import place_of, recall
from sncl.streams.user.spec import parse_spec


@FUZZ
@given(st.data())
def test_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    monkeypatch.setattr("sncl.streams.user.stamp.SETTLED", 0)
    table = tmp_path / "flowers.csv"
    spec = parse_spec(str(table if table.exists() else files.save_table(table)))
    assert spec is not None
    path, whole = place_of(tmp_path, spec), tmp_path / "whole.json"
    if not whole.exists():
        choose("", spec, {}).remember(tmp_path)
        path.rename(whole)
    path.write_bytes(whole.read_bytes())
    told = recall(tmp_path, spec)
    assert told is not None
    path.write_bytes(data.draw(mutants([whole.read_bytes()])))
    assert read_or_refused(lambda: recall(tmp_path, spec)) in (None, told)
