"""The settings of a run: the usual ones, those shipped in ``defaults.toml``, those of a file, those given as text."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sncl.errors import SnclError, nearest, suggestion
from sncl.methods.table import MEANT_SETTINGS, Settings, Value, entry, make

if TYPE_CHECKING:
    from sncl.methods.method import Method

DefaultsTable = dict[str, dict[str, dict[str, Settings]]]

TRAINING: Settings = {"lr": 0.03, "batch_size": 32, "replay": 32, "ema": 0.0}
NEUTRAL: Settings = {  # left out of a run's settings, as before these were there
    "clip": 0.0,
    "class_weight": "none",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "lr_drop": 1.0,
    "lr_drop_part": 0.1,
}
NEUTRAL_OF_METHODS: Settings = {"ace": 0, "settle": 0.0}  # likewise, unless a method has another usual value
USER: Settings = {"clip": 2.0}  # for data that nobody has looked at
USER_MLP: Settings = {"lr": 0.1}  # for data nobody has tuned for; a ResNet keeps that of TRAINING
OF_LENGTH = ("fill", "settle")  # settings shipped for a stream's usual number of epochs, and as many samples
TRUTHS = {"true": True, "1": True, "false": False, "0": False}
ARGUMENTS = ("memory", "seed", "seeds", "epochs", "tasks", "device", "precision", "engine", "threads", "validation")
MEMORY = 200  # samples, unless told otherwise; of the user's data at most a fifth


@cache
def defaults_table() -> DefaultsTable:
    """stream -> method -> memory, or "any" -> settings."""
    return tomllib.loads(files("sncl").joinpath("defaults.toml").read_text())


def defaults(stream: str, method: str, memory: int) -> Settings:
    """The settings that differ from the method's own for this stream; those of the nearest memory in the table.

    A stream without a section, such as the user's data, takes the section ``any``; a method with additions that has no
    row there takes that of the plain one.
    """
    rows = defaults_table().get(stream, defaults_table()["any"])
    row = rows.get("sgd" if method == "joint" else method) or rows.get(entry(method).plain, {})
    if not row or "any" in row:
        return row.get("any", {})
    return row[min(row, key=lambda listed: abs(math.log(memory / int(listed))))]


def of_length(length: float, row: Settings) -> Settings:
    """A row of the table for a run of another length: what is counted in samples is counted in the run's."""
    return row | {key: round(float(row[key]) * length, 6) for key in OF_LENGTH if key in row}


def known_settings(method: str, row: Settings, given: Mapping[str, Value]) -> Settings:
    """All settings a run of the method has, with the values of its ``row`` in the table of defaults.

    Which there are depends on ``given`` choices: another policy of the gates than the row's starts from its usual
    values.
    """
    found = entry(method)
    chosen = {key: given.get(key, row.get(key, found.settings[key])) for key in found.choices}
    settings = found.settings_with({**given, **chosen})
    if any(row.get(key, found.settings[key]) != value for key, value in chosen.items()):
        row = {key: value for key, value in row.items() if not found.choice_of(key)}
    return settings | row | chosen


def make_method(name: str, settings: Settings) -> Method:
    """The method with those of a run's settings that are its own."""
    return make(name, {key: settings[key] for key in entry(name).settings_with(settings) if key in settings})


def neutral_of(method: str) -> Settings:
    """The values with which training and the method are as if the settings were not there."""
    own = entry(method).settings_with({})
    return NEUTRAL | {key: value for key, value in NEUTRAL_OF_METHODS.items() if own.get(key) == value}


def resolve(
    stream: str,
    method: str,
    memory: int,
    usual: Settings,
    neutral: Settings,
    given: dict[str, str],
    tasks: int,
    length: float = 1.0,
) -> Settings:
    """All settings of a run: what is ``given`` goes before what is shipped for the stream, that before the method's
    own, and that before the ``usual`` ones of training; those with ``neutral`` values are left out. ``length`` is that
    of the run as a part of the stream's usual one."""
    known = usual | known_settings(method, of_length(length, defaults(stream, method, memory)), given)
    if "parts" in known:
        known["parts"] = tasks or known["parts"]  # the tasks that share the memory
    for key in given:
        owner = entry(method).choice_of(key)
        if key not in known and owner and "gates" in known:
            raise SnclError(f"{key} belongs to {owner}, and here it is gates={known['gates']}; give `gates` too")
    chosen = known | {key: parse(key, text, known) for key, text in given.items()}
    return {key: value for key, value in chosen.items() if key not in neutral or neutral[key] != value}


def parse(key: str, text: str, known: Settings, where: str = "`settings`") -> Value:
    """A value given as text, as the type the setting has; ``where`` it was given is named in errors."""
    if key not in known:
        if key in ARGUMENTS:
            raise SnclError(f"{key} is no setting; give `{key}={text}` by itself")
        near = suggestion(nearest(key, known, MEANT_SETTINGS))
        raise SnclError(f"there is no setting {key!r} here; {near}{where} takes {', '.join(sorted(known))}")
    kind = type(known[key])
    try:
        value = TRUTHS[text.strip().lower()] if kind is bool else kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not finite")
        return value
    except (ValueError, KeyError) as error:
        raise SnclError(f"{where} {key}= takes a value like {known[key]!r}, not {text!r}") from error


def read_settings(path: Path, stream: str, method: str, memory: int | None) -> dict[str, str]:
    """The settings for this stream, method and memory in a file of the same form, as text.

    Only the very memory, or "any": a file that was tuned for another one is no answer here.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SnclError(f"cannot read the settings in {path}: {reason}") from error
    row = found.get(stream)
    row = row.get(method) if isinstance(row, dict) else None
    kept = str(memory or MEMORY) if entry(method).memory else "any"
    row = row.get(kept, row.get("any")) if isinstance(row, dict) else None
    if not isinstance(row, dict):
        raise SnclError(f"{path} has no entry [{stream}] {method}.{kept}")
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, float | int | str):
            raise SnclError(f"{path}: {key} is a number or a text, not {value!r}")
    return {key: str(value) for key, value in row.items()}
