"""The files a study leaves: the chosen settings as TOML, and every trial as a line of JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from sncl.methods.table import Value, entry
from sncl.runs.experiment import PROTOCOL
from sncl.training.checkpoint import write_atomically
from sncl.tuning.search import Search
from sncl.tuning.trial import Trial, count_states, default_trial, ranking


def write_files(search: Search, trials: Sequence[Trial], wanted: int, out: Path) -> None:
    """The settings chosen so far, in the form of ``defaults.toml``, and every trial in a .jsonl beside it."""
    lines = [json.dumps(trial.as_json()) + "\n" for trial in trials]
    write_atomically(out.with_suffix(".jsonl"), "".join(lines).encode())
    best = ranking(trials)
    if best:
        write_atomically(out, settings_file(search, trials, wanted, best[0]).encode())


def settings_file(search: Search, trials: Sequence[Trial], wanted: int, chosen: Trial) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in count_states(trials).items())
    shipped = default_trial(trials)
    of_shipped = "unknown"
    if shipped is not None:
        of_shipped = shipped.shown() if shipped.state == "complete" else f"none ({shipped.reason or shipped.state})"
    experiment = search.experiment(chosen.params, 0)
    notes = [
        f"Chosen by sncl tune on validation data only: {search.validation} of the training data of each class.",
        f"Trials: {counts}. Seeds: 0 to {search.seeds - 1}. Protocol {PROTOCOL}, epochs {experiment.epochs}, "
        f"tasks {experiment.tasks}.",
        f"Validation accuracy over seeds: {chosen.shown()} (trial {chosen.number}); shipped defaults: {of_shipped}.",
        f"Command: {repeat_command(search, wanted)}",
    ]
    memory = experiment.memory if entry(search.method).memory else "any"
    values = ", ".join(f"{key} = {_toml(value)}" for key, value in search.row(chosen.params).items())
    comments = "".join(f"# {_plain(note)}\n" for note in notes)
    return f"{comments}\n[{_key(search.stream)}]\n{_key(search.method)}.{memory} = {{ {values} }}\n"


def repeat_command(search: Search, trials: int) -> str:
    """The command that repeats a search."""
    words = [word for name, value in search.arguments(trials) for word in (f"--{name}", value)]
    return shlex.join(["sncl", "tune", *words])


def _key(name: str) -> str:
    """A name of a section or a method, in quotes where TOML wants them."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _toml(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def _plain(text: str) -> str:
    """A comment cannot hold what would end its line."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
