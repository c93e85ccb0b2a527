"""Damaged tables are read or refused, and never anything else."""

from pathlib import Path

import pytest
import user_files as files
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, corpus, fresh, mutants, read_or_refused

import sncl

ROWS = files.flowers()[:30]


def check(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    loaded = read_or_refused(lambda: files.read_data(path))
    if loaded is not None:
        assert loaded.dataset.table is not None and len(loaded.dataset.names) > 1
        stream = read_or_refused(lambda: sncl.stream(str(path)))
        assert stream is None or (stream.x.isfinite().all() and stream.test_x.isfinite().all())
    path.unlink()


@FUZZ
@given(st.data())
def test_csv(tmp_path: Path, data: st.DataObject) -> None:
    content = files.save_table(tmp_path / "whole.csv", ROWS).read_bytes()
    check(fresh(tmp_path, ".csv"), data.draw(mutants([content, *corpus("csv")])))


@FUZZ
@given(st.data())
def test_parquet(tmp_path: Path, data: st.DataObject) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(dict(zip(files.HEADER, map(list, zip(*ROWS, strict=True)), strict=True)))
    contents = []
    for compression in ("none", "snappy"):
        parquet.write_table(table, tmp_path / "whole.parquet", compression=compression)
        contents.append((tmp_path / "whole.parquet").read_bytes())
    check(fresh(tmp_path, ".parquet"), data.draw(mutants(contents)))
