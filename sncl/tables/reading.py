"""Tables on disk as columns by name: CSV (also gzipped, also with tabs) and Parquet files, missing values kept."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sncl.errors import SnclError
from sncl.tables.columns import Columns
from sncl.tables.parquet import read_parquet
from sncl.tables.separated import read_separated

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_SUFFIXES = (*CSV_SUFFIXES, ".parquet")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")


class Table(NamedTuple):
    """The columns of a file by name, and what was noticed while reading, one line each."""

    columns: Columns
    notes: list[str]


def table_suffix(path: Path) -> str | None:
    """The suffix of a table, or of a spreadsheet, which is refused with advice; None for any other file."""
    name = path.name.lower()
    return next((suffix for suffix in (*TABLE_SUFFIXES, *SPREADSHEETS) if name.endswith(suffix)), None)


def table_files(path: Path) -> tuple[Path, Path | None]:
    """The table, or the training table and the test table of a folder."""
    if not path.is_dir():
        return path, None
    train, test = (
        [path / f"{name}{suffix}" for suffix in TABLE_SUFFIXES if (path / f"{name}{suffix}").is_file()]
        for name in ("train", "test")
    )
    if len(train) != 1 or len(test) != 1:
        raise SnclError(f"{path} is a folder, so it needs one train.csv and one test.csv (or .tsv, .csv.gz, .parquet)")
    return train[0], test[0]


def read_columns(path: Path | str) -> Columns:
    """The columns of a file by name; missing values are NaN, NaT or None."""
    return read_table(path).columns


def read_table(path: Path | str) -> Table:
    """The columns of a file by name, and what was noticed. The last two files are kept, for the runs of many seeds."""
    path = Path(path)
    suffix = table_suffix(path)
    if suffix is None or suffix in SPREADSHEETS:
        advice = "; save the sheet as CSV" if suffix else ""
        raise SnclError(f"a table is a {', '.join(CSV_SUFFIXES)} or .parquet file, not {path}{advice}")
    try:
        stamp = path.stat()
    except OSError as error:
        raise SnclError(f"{path} cannot be read ({error})") from error
    found = _read(path, suffix, (stamp.st_mtime_ns, stamp.st_ctime_ns, stamp.st_size, stamp.st_ino))
    return Table(dict(found.columns), list(found.notes))


@lru_cache(maxsize=2)
def _read(path: Path, suffix: str, stamp: tuple[int, ...]) -> Table:
    """The file as it was when it had this stamp."""
    columns, notes = read_parquet(path) if suffix == ".parquet" else read_separated(path)
    if not columns or not len(next(iter(columns.values()))):
        raise SnclError(f"{path} has no rows")
    return Table(columns, notes)
