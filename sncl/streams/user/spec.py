"""How a stream's name and options specify the user's data: ``folder:PATH``, ``npz:PATH``, ``table:PATH``, or a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from sncl.errors import SnclError
from sncl.streams.user.recognise import Form, recognised

Cut = Literal["classes", "domain", "none"]

FORMS: dict[str, str] = {
    "folder:PATH": "images in PATH/<class>/, PATH/<domain>/<class>/, or those in PATH/train and PATH/test",
    "npz:PATH": "arrays x, y (and test_x, test_y, domain) of one .npz file; PATH.npz will do",
    "table:PATH": "a .csv, .tsv, .csv.gz or .parquet file with a column of labels; PATH.csv and so on will do",
}


@dataclass(frozen=True)
class DataSpec:
    """Where the user's data are, in which form, and the options given for them; None: not given.

    ``ignore``, ``categories`` and ``numbers`` name columns of a table.
    """

    form: Form
    path: Path
    cut: Cut | None = None
    target: str | None = None
    domain: str | None = None
    size: int | None = None
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.form}:{self.path.name}"


def parse_spec(
    stream: str,
    cut: str | None = None,
    target: str | None = None,
    domain: str | None = None,
    size: int | None = None,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> DataSpec | None:
    """What a stream's name and options specify; None for a benchmark, which takes none of these options."""
    located = locate(stream)
    if located is None:
        options = {"cut": cut, "target": target, "domain": domain, "size": size, "ignore": ignore or None}
        options |= {"categories": categories or None, "numbers": numbers or None}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise SnclError(f"`{given[0]}` is for user data ({', '.join(FORMS)}), not for {stream!r}")
        return None
    form, path = located
    if cut is not None and cut not in get_args(Cut):
        raise SnclError(f"`cut` is one of {', '.join(get_args(Cut))}, not {cut!r}")
    if not path.exists():
        raise SnclError(f"there is no {path} for the stream {stream!r}")
    if form != "table" and (ignore or categories or numbers):
        raise SnclError(f"`ignore`, `categories` and `numbers` name columns of a table, and {stream!r} is none")
    kinds = tuple(ignore), tuple(categories), tuple(numbers)
    return DataSpec(form, path.resolve(), cut, target, domain, size, *kinds)  # type: ignore[arg-type]


def locate(stream: str) -> tuple[Form, Path] | None:
    """The form and the path that a stream's name gives; None for a name of `sncl list`, and for one that is no path."""
    form, colon, rest = stream.partition(":")
    if colon and form in get_args(Form):
        if not rest:
            raise SnclError(f"{form}: is followed by a path, as in {form}:data/mine")
        return form, Path(rest).expanduser()  # type: ignore[return-value]
    return None if beside_benchmark(stream) else recognised(Path(stream).expanduser())


def beside_benchmark(stream: str) -> str:
    """A note where a file or folder has the name of a benchmark, which is what the name stands for; else nothing."""
    if not Path(stream).exists():
        return ""
    from sncl.streams.benchmarks import STREAMS

    return f"{stream} is the benchmark; for what lies here under that name say ./{stream}" if stream in STREAMS else ""
