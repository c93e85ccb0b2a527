"""The settings each method runs with, by stream and memory: the table is ``defaults.toml`` beside this file."""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib.resources import files

from sncl.methods.table import Value

Settings = dict[str, Value]
Table = dict[str, dict[str, dict[str, Settings]]]


@cache
def table() -> Table:
    """stream -> method -> memory, or "any" -> settings."""
    return tomllib.loads(files("sncl").joinpath("defaults.toml").read_text())


def defaults(stream: str, method: str, memory: int) -> Settings:
    """The settings that differ from the method's own for this stream; those of the nearest memory in the table."""
    row = table()[stream].get("sgd" if method == "joint" else method, {})
    if not row or "any" in row:
        return row.get("any", {})
    return row[min(row, key=lambda listed: abs(math.log(memory / int(listed))))]
