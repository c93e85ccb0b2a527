"""What is searched: a method on a stream, the settings that are fixed and the space of the others.

Trials are scored on a part of the training data that is held out; test data are never scored on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sncl.errors import SnclError
from sncl.methods.table import Settings, method_name
from sncl.runs.experiment import PROTOCOL, Experiment
from sncl.runs.plan import benchmark_of, neutral_settings, plan
from sncl.runs.settings import defaults
from sncl.streams.benchmarks import stream_name
from sncl.streams.user.identity import UserData
from sncl.tuning.space import Choices, Space, including, is_on, parse_values, usual_space


@dataclass(frozen=True)
class Search:
    """What is searched: a method on a stream, what is fixed, and where each other setting may lie.

    ``fixed`` are settings as text. Built by :func:`plan_search`, which checks them.
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
    elsewhere: bool = False  # trials run on machines that may have the GPU which this one lacks

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
            elsewhere=self.elsewhere,
        )

    def default(self) -> Settings:
        """The shipped values of the searched settings: the first trial."""
        settings = self.settings({})
        return {key: settings[key] for key in self.space}

    def settings(self, params: Settings) -> Settings:
        """All settings of a trial, those with neutral values among them."""
        experiment = self.experiment(params, 0)
        benchmark = benchmark_of(self.stream, self.user_data, self.fixed)
        return neutral_settings(self.method, benchmark, self.user_data) | experiment.settings

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
        settings = self.settings(params)
        return {key: settings[key] for key in shipped | self.fixed | params}

    def arguments(self, trials: int) -> list[tuple[str, str]]:
        """What repeats this search, as names and values, without what belongs to one machine."""
        given: dict[str, Any] = {"stream": self.stream, "method": self.method}
        if self.user_data is not None:
            spec = self.user_data.spec()
            given |= {"stream": spec.name, "cut": spec.cut, "target": spec.target}
            given |= {"domain": spec.domain, "size": spec.size}
        given |= {"memory": self.memory, "trials": trials, "seeds": self.seeds, "validation": self.validation}
        given |= {"epochs": self.epochs, "tasks": self.tasks}
        pairs = [(name, str(value)) for name, value in given.items() if value is not None]
        if self.user_data is not None:
            named = {"ignore": spec.ignore, "category": spec.categories, "number": spec.numbers}
            pairs += [(option, name) for option, names in named.items() for name in names]
        pairs += [("set", f"{key}={text}") for key, text in self.fixed.items()]
        return pairs + [("search", f"{key}={where}") for key, where in self.space.items()]


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
    elsewhere: bool = False,
) -> Search:
    """Put the search space together and check every name and value, before anything is loaded or written."""
    if seeds < 1:
        raise SnclError(f"`seeds` is at least 1, not {seeds}")
    if not 0 < validation < 1:
        raise SnclError(f"`validation` lies between 0 and 1, not at {validation}: nothing is chosen on test data")
    fixed, searched = fixed or {}, searched or {}
    stream, method = stream_name(stream) if user_data is None else user_data.name, method_name(method)
    bare = Search(stream, method, memory, seeds, validation, epochs, tasks, device, fixed, {}, user_data, elsewhere)
    refuse_searched(searched, fixed)
    search = replace(bare, space=search_space(method, bare.settings({}), fixed, searched))
    for key, where in search.space.items():  # values that the method refuses
        for value in where.values if isinstance(where, Choices) else where[:2]:
            search.experiment({key: value}, 0)
    return search


def refuse_searched(searched: Mapping[str, str], fixed: Mapping[str, str]) -> None:
    """Refuse to search what is fixed, and what would make another stream."""
    for key, text in searched.items():
        if key in fixed:
            raise SnclError(f"`{key}={fixed[key]}` is fixed and also in `search`; give one of them")
        if key == "split":
            raise SnclError(f"{key} makes another stream, which cannot be compared; fix it: `{key}={text}`")


def search_space(method: str, known: Settings, fixed: Mapping[str, str], searched: Mapping[str, str]) -> Space:
    """What is searched for a method by default, where it is on and not fixed, and what was asked for."""
    usual = usual_space(method)
    texts = {key: text for key, text in usual.items() if key not in fixed and is_on(key, text, known)} | dict(searched)
    if not texts:
        raise SnclError("every setting is fixed; leave something to search, or name another setting in `search`")
    return {key: including(key, parse_values(key, text, known), known[key]) for key, text in texts.items()}
