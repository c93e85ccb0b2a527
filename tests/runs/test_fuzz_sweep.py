"""Damaged files of an analysis in a run folder are read or refused."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from sweeps import keep_example

from sncl.runs.experiment import read_described
from sncl.runs.sweep import OWN, SWEEP, read_sweep
from sncl.training.checkpoint import unsealed


@FUZZ
@given(st.data())
def test_sweep(runs: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder, experiment = fresh(tmp_path), read_described(runs / "sncl-0")
    folder.mkdir()
    keep_example(folder, experiment)
    content = (folder / SWEEP).read_bytes()
    unchecked = json.dumps(unsealed(json.loads(content)), indent=2).encode()
    (folder / SWEEP).write_bytes(data.draw(mutants([content, unchecked])))
    found = read_or_refused(lambda: read_sweep(folder, experiment))
    if found is not None:
        f"{found.test_rows:,}"
        assert OWN in found.points
        for point in found.points.values():
            f"{point.open:.2f} {point.parameters_left:.2f}"
            assert point.accuracy
