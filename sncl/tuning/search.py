"""What ``sncl tune`` searches, how one choice of settings is scored, and the files it leaves. Knows nothing of Optuna.

Scores are accuracies on a part of the training data that is held out; test data are never scored on.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sncl.errors import SnclError
from sncl.methods.table import Value, entry
from sncl.runs.experiment import PROTOCOL, Experiment
from sncl.runs.plan import plan
from sncl.runs.settings import Settings, defaults, parse
from sncl.runs.summary import spread
from sncl.streams.user.data import UserData
from sncl.training.checkpoint import write_atomically

# In the words of --search; the default of a setting is always among its values.
STEP_SIZES = {"lr": "0.03,0.1,0.2"}
SPACES: dict[str, dict[str, str]] = {
    "oewc": {"strength": "0.1..100:log", "decay": "0.5..1"},
    "si": {"strength": "0.1..10:log", "damping": "0.1..1:log"},
    "lwf": {"alpha": "0.1..10:log", "temperature": "1..4", "decay": "0,0.0005"},
    "mer": {"beta": "0.1..1", "gamma": "0.1..1"},
    "gem": {"margin": "0..1"},
    "icarl": {"decay": "0,1e-05,0.0001,0.0005"},
    "hal": {"strength": "0.03..1:log", "decay": "0.1..0.9", "feature_weight": "0.01..1:log"},
    "der": {"logits": "0.05..5:log"},
    "derpp": {"logits": "0.05..5:log", "labels": "0.05..5:log"},
    "sncl": {
        "alpha": "0.1..10:log",
        "beta": "0.1..10:log",
        "gamma": "0.1..10:log",
        "eta": "1e-05..0.1:log",
        "release": "0.003..3:log",
        "ema": "0,0.99,0.995,0.999",
    },
}

PART = {"release": "eta"}  # settings that matter only where another one is not 0


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``; whole ones where the setting is a whole number."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (":log" if self.log else "")


class Choices(NamedTuple):
    """A few values."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Space = dict[str, Range | Choices]


@dataclass(frozen=True)
class Search:
    """What is searched: a method on a stream, what is fixed, and where each other setting may lie.

    ``fixed`` are settings as ``--set`` gives them. Built by :func:`plan_search`, which checks them.
    """

    stream: str
    method: str
    memory: int | None
    seeds: int
    validation: float
    epochs: int | None
    tasks: int | None
    device: str
    fixed: dict[str, str]
    space: Space
    user_data: UserData | None = None

    def experiment(self, params: Settings, seed: int) -> Experiment:
        """One run of a trial with these values of the searched settings."""
        return plan(
            self.stream,
            self.method,
            memory=self.memory,
            seed=seed,
            epochs=self.epochs,
            tasks=self.tasks,
            validation=self.validation,
            device=self.device,
            settings=self.fixed | {key: str(value) for key, value in params.items()},
            user_data=self.user_data,
        )

    def default(self) -> Settings:
        """The shipped values of the searched settings: the first trial."""
        settings = self.experiment({}, 0).settings
        return {key: settings[key] for key in self.space}

    def identity(self) -> dict[str, Any]:
        """What must agree for trials to be comparable. Device and number of trials may differ."""
        usual = self.experiment({}, 0)
        facts = {"protocol": PROTOCOL, "stream": self.stream, "method": self.method, "memory": usual.memory}
        facts |= {"data": self.user_data.fingerprint, "cut": self.user_data.cut} if self.user_data is not None else {}
        facts |= {"epochs": usual.epochs, "tasks": usual.tasks, "validation": self.validation, "seeds": self.seeds}
        facts |= {f"setting {key}": value for key, value in usual.settings.items()}
        return facts | {f"search {key}": str(where) for key, where in self.space.items()}

    def row(self, params: Settings) -> Settings:
        """A line of a settings file: the shipped one, with what was fixed and what was chosen."""
        experiment = self.experiment(params, 0)
        shipped = defaults(self.stream, self.method, experiment.memory)
        return {key: experiment.settings[key] for key in shipped | self.fixed | params}

    def command(self, trials: int) -> str:
        """The command that repeats this search, without what belongs to one machine."""
        words = ["sncl", "tune", "--stream", self.stream, "--method", self.method]
        if self.user_data is not None:
            asked = self.user_data.asked()
            words[3] = asked.name
            options = {"cut": asked.cut, "target": asked.target, "domain": asked.domain, "size": asked.size}
            words += [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]
        given = {"memory": self.memory, "trials": trials, "seeds": self.seeds, "validation": self.validation}
        for name, value in (given | {"epochs": self.epochs, "tasks": self.tasks}).items():
            words += [] if value is None else [f"--{name}", str(value)]
        for key, text in self.fixed.items():
            words += ["--set", f"{key}={text}"]
        for key, where in self.space.items():
            words += ["--search", f"{key}={where}"]
        return shlex.join(words)


def plan_search(
    stream: str,
    method: str,
    *,
    memory: int | None = None,
    seeds: int = 2,
    validation: float = 0.1,
    epochs: int | None = None,
    tasks: int | None = None,
    device: str = "auto",
    fixed: dict[str, str] | None = None,
    searched: dict[str, str] | None = None,
    user_data: UserData | None = None,
) -> Search:
    """Put the search space together and check every name and value, before anything is loaded or written."""
    if seeds < 1:
        raise SnclError(f"--seeds is at least 1, not {seeds}")
    if not 0 < validation < 1:
        raise SnclError(f"--validation lies between 0 and 1, not at {validation}: nothing is chosen on test data")
    fixed, searched = fixed or {}, searched or {}
    stream = stream if user_data is None else user_data.name
    bare = Search(stream, method, memory, seeds, validation, epochs, tasks, device, fixed, {}, user_data)
    known = bare.experiment({}, 0).settings
    for key in searched:
        if key in fixed:
            raise SnclError(f"{key} is fixed by --set and searched by --search; give one of them")
        if key in ("split", "augment"):
            raise SnclError(f"{key} makes another stream, which cannot be compared; give it with --set")
    usual = STEP_SIZES | SPACES.get(method, {})
    texts = {key: text for key, text in usual.items() if key not in fixed and is_on(key, text, known)} | searched
    if not texts:
        raise SnclError("everything is fixed by --set; leave something to search, or add it with --search")
    space = {key: including(key, parse_where(key, text, known), known[key]) for key, text in texts.items()}
    for key, where in space.items():  # values that the method refuses
        for value in where.values if isinstance(where, Choices) else where[:2]:
            bare.experiment({key: value}, 0)
    return Search(stream, method, memory, seeds, validation, epochs, tasks, device, fixed, space, user_data)


def is_on(key: str, text: str, known: Settings) -> bool:
    """Whether the part of a method that a setting belongs to is used at all: a weight of 0 switches it off."""
    weight = known[PART.get(key, key)]
    return weight != 0 or not text.endswith(":log")


def parse_where(key: str, text: str, known: Settings) -> Range | Choices:
    """``LOW..HIGH``, ``LOW..HIGH:log`` or ``A,B,C``. The ends of a range are rounded as the values in it will be."""
    if ".." not in text:
        values = [parse(key, word.strip(), known, "--search") for word in text.split(",")]
        return Choices(tuple(dict.fromkeys(values)))
    ends, _, scale = text.partition(":")
    words = ends.split("..")
    if len(words) != 2 or scale not in ("", "log"):
        raise SnclError(f"--search {key}= takes LOW..HIGH, LOW..HIGH:log or A,B,C, not {text!r}")
    low, high = (parse(key, word.strip(), known, "--search") for word in words)
    if isinstance(low, str) or isinstance(high, str):
        raise SnclError(f"{key} has no range; name its values: --search {key}=A,B,C")
    found = Range(rounded(low), rounded(high), scale == "log")
    if not found.low < found.high:
        raise SnclError(f"--search {key}= goes from a smaller to a larger number, not from {low} to {high}")
    if found.log and not found.low > 0:
        raise SnclError(f"--search {key}= on a logarithmic scale begins above 0, not at {low}")
    return found


def including(key: str, where: Range | Choices, default: Value) -> Range | Choices:
    """The same with the default in it, which is tried first."""
    if isinstance(where, Choices):
        return where if default in where.values else Choices((*where.values, default))
    assert not isinstance(default, str)  # it has no range
    if where.log and not default > 0:
        raise SnclError(f"{key} is {default} by default, which no logarithmic scale has; use choices or --set {key}=")
    return Range(min(where.low, default), max(where.high, default), where.log)


def rounded(value: float | int) -> float | int:
    """Two significant digits: more say nothing, and what is written down is what was run."""
    return value if isinstance(value, int) else float(f"{value:.2g}")


class Trial(NamedTuple):
    """One choice of settings and what came of it. ``state`` is complete, pruned, failed, running or waiting."""

    number: int
    state: str
    params: Settings
    scores: list[float]
    seconds: float | None
    reason: str | None
    default: bool

    @property
    def score(self) -> float | None:
        return spread(self.scores)[0] if self.state == "complete" else None

    def shown(self) -> str:
        """Mean and standard deviation over seeds."""
        mean, deviation = spread(self.scores)
        return f"{mean:.2f} ± {deviation:.2f}"

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"score": self.score}


def ranking(trials: Sequence[Trial]) -> list[Trial]:
    """The complete ones, best first; of equal ones the earlier, so that nothing replaces the defaults for no gain."""
    complete = [trial for trial in trials if trial.score is not None]
    return sorted(complete, key=lambda trial: (-(trial.score or 0.0), not trial.default, trial.number))


def default_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial of the shipped defaults that got furthest: one that was killed is tried again under another number."""
    of_defaults = [trial for trial in trials if trial.default]
    return max(of_defaults, key=lambda trial: (trial.state == "complete", trial.number), default=None)


def count(trials: Sequence[Trial]) -> dict[str, int]:
    return {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}


def write_files(search: Search, trials: Sequence[Trial], wanted: int, out: Path) -> None:
    """The settings chosen so far, in the form of ``defaults.toml``, and every trial in a .jsonl beside it."""
    lines = [json.dumps(trial.as_json()) + "\n" for trial in trials]
    write_atomically(out.with_suffix(".jsonl"), "".join(lines).encode())
    best = ranking(trials)
    if best:
        write_atomically(out, settings_file(search, trials, wanted, best[0]).encode())


def settings_file(search: Search, trials: Sequence[Trial], wanted: int, chosen: Trial) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in count(trials).items())
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
        f"Command: {search.command(wanted)}",
    ]
    memory = experiment.memory if entry(search.method).memory else "any"
    values = ", ".join(f"{key} = {_toml(value)}" for key, value in search.row(chosen.params).items())
    comments = "".join(f"# {_plain(note)}\n" for note in notes)
    return f"{comments}\n[{_key(search.stream)}]\n{search.method}.{memory} = {{ {values} }}\n"


def _key(name: str) -> str:
    """A name of a section, in quotes where TOML wants them."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _toml(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def _plain(text: str) -> str:
    """A comment cannot hold what would end its line."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
