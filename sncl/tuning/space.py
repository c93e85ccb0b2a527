"""Where each searched setting may lie: a range of numbers or a few values; and what is searched by default."""

from __future__ import annotations

from typing import NamedTuple

from sncl.errors import SnclError
from sncl.methods.table import Settings, Value, entry
from sncl.runs.settings import parse

# As text; the default of a setting is always among its values.
STEP_SIZES = {"lr": "0.03,0.1,0.2"}
ADDITIONS = {  # of methods with additions, the same for all of them
    "lr": "0.01,0.03,0.1",
    "momentum": "0,0.9",
    "weight_decay": "0,0.0001,0.0005",
    "augment": "crop-flip,strong",
    "replay": "32,64,128",
    "ema": "0.99,0.999,0.9995",
}
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
        "start": "0.1..1",
        "fill": "0.3..3000:log",
        "settle": "0.3..3000:log",
        "eta": "1e-05..0.1:log",
        "anneal": "0.003..3:log",
        "ema": "0,0.99,0.995,0.999",
    },
}


def usual_space(method: str) -> dict[str, str]:
    """Where the settings of a method are searched unless told otherwise."""
    plain = entry(method).plain
    if not plain:
        return STEP_SIZES | SPACES.get(method, {})
    own = SPACES.get(plain, {}) | ({"ace": "0,1"} if "ace" in entry(method).settings else {})
    return STEP_SIZES | own | ADDITIONS


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


def is_on(key: str, text: str, known: Settings) -> bool:
    """Whether the part of a method that a setting belongs to is used at all: a weight of 0 switches it off."""
    return key in known and (known[key] != 0 or not text.endswith(":log"))


def parse_values(key: str, text: str, known: Settings) -> Range | Choices:
    """``LOW..HIGH``, ``LOW..HIGH:log`` or ``A,B,C``. The ends of a range are rounded as the values in it will be."""
    if ".." not in text:
        values = [parse(key, word.strip(), known, "`search`") for word in text.split(",")]
        return Choices(tuple(dict.fromkeys(values)))
    ends, _, scale = text.partition(":")
    words = ends.split("..")
    if len(words) != 2 or scale not in ("", "log"):
        raise SnclError(f"`search` of {key} takes LOW..HIGH, LOW..HIGH:log or A,B,C, not {text!r}")
    low, high = (parse(key, word.strip(), known, "`search`") for word in words)
    if isinstance(low, str) or isinstance(high, str):
        raise SnclError(f"{key} has no range; name its values in `search`: {key}=A,B,C")
    found = Range(two_digits(low), two_digits(high), scale == "log")
    if not found.low < found.high:
        raise SnclError(f"`search` of {key} goes from a smaller to a larger number, not from {low} to {high}")
    if found.log and not found.low > 0:
        raise SnclError(f"`search` of {key} on a logarithmic scale begins above 0, not at {low}")
    return found


def including(key: str, where: Range | Choices, default: Value) -> Range | Choices:
    """The same with the default in it, which is tried first."""
    if isinstance(where, Choices):
        return where if default in where.values else Choices((*where.values, default))
    assert not isinstance(default, str)  # it has no range
    if where.log and not default > 0:
        raise SnclError(f"{key} is {default} by default, which no logarithmic scale has; search a few values or fix it")
    return Range(min(where.low, default), max(where.high, default), where.log)


def two_digits(value: float | int) -> float | int:
    """Two significant digits: more say nothing, and what is written down is what was run."""
    return value if isinstance(value, int) else float(f"{value:.2g}")
