"""Damaged lines of a results file are read or refused in one line."""

import json
from pathlib import Path

from example_results import result
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused

from sncl.paper.records import known, of_lines, read_lines, results_line


@FUZZ
@given(st.data())
def test_lines(tmp_path: Path, data: st.DataObject) -> None:
    lines = [json.dumps(results_line(result(seed=seed)) | {"title": "ER"}) for seed in range(2)]
    path = fresh(tmp_path, ".jsonl")
    path.write_bytes(data.draw(mutants(["\n".join(lines).encode() + b"\n"])))
    found = read_or_refused(lambda: read_lines(path))
    if found is not None:
        assert all(isinstance(what, str) for what, _ in of_lines(found))
        known(tmp_path / "nowhere", found)
    path.unlink()
