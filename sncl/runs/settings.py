"""The settings each method runs with, by stream and memory: the table is ``defaults.toml`` beside this file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from sncl.errors import SnclError
from sncl.methods.table import Settings, Value, entry

MASK: Settings = {"threshold": 0.0, "compensate": 0.0}  # of evaluation, see sncl.networks.gating.mask
MASKED = ("kl", "natural")  # gates with a mask to choose
Table = dict[str, dict[str, dict[str, Settings]]]


@cache
def table() -> Table:
    """stream -> method -> memory, or "any" -> settings."""
    return tomllib.loads(files("sncl").joinpath("defaults.toml").read_text())


def defaults(stream: str, method: str, memory: int) -> Settings:
    """The settings that differ from the method's own for this stream; those of the nearest memory in the table.

    A stream without a section, such as a person's own data, takes the section ``any``.
    """
    row = table().get(stream, table()["any"]).get("sgd" if method == "joint" else method, {})
    if not row or "any" in row:
        return row.get("any", {})
    return row[min(row, key=lambda listed: abs(math.log(memory / int(listed))))]


def known_settings(method: str, row: Settings, given: Mapping[str, Value]) -> Settings:
    """All settings a run of the method has, with the values of its ``row`` in the table of defaults.

    Which there are depends on ``given`` choices: another policy of the gates than the row's starts from its usual
    values.
    """
    found = entry(method)
    chosen = {key: given.get(key, row.get(key, found.settings[key])) for key in found.choices}
    settings = found.settings_with(chosen)
    if settings.get("gates") in MASKED:
        settings |= MASK
    if any(row.get(key, found.settings[key]) != value for key, value in chosen.items()):
        row = {key: value for key, value in row.items() if key not in MASK and not found.choice_of(key)}
    return settings | row | chosen


def read_settings(path: Path, stream: str, method: str, memory: int | None) -> dict[str, str]:
    """The settings for this stream, method and memory in a file of the same form, as ``--set`` would give them.

    Only the very memory, or "any": a file that was tuned for another one is no answer here.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SnclError(f"cannot read the settings in {path}: {reason}") from error
    row = found.get(stream)
    row = row.get(method) if isinstance(row, dict) else None
    kept = str(memory or 200) if entry(method).memory else "any"
    row = row.get(kept, row.get("any")) if isinstance(row, dict) else None
    if not isinstance(row, dict):
        raise SnclError(f"{path} has no entry [{stream}] {method}.{kept}")
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, float | int | str):
            raise SnclError(f"{path}: {key} is a number or a text, not {value!r}")
    return {key: str(value) for key, value in row.items()}
