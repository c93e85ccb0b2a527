"""The paper's tables: the experiments behind their cells and the numbers printed there (``paper.toml``).

Two tables compare methods, two compare variants of SNCL with parts of it switched off by their neutral values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from sncl.errors import SnclError, nearest, suggestion
from sncl.methods.table import METHODS, Settings, method_name
from sncl.runs.settings import defaults
from sncl.runs.summary import READOUT_TITLES
from sncl.streams.benchmarks import STREAMS, stream_name

PAPER_SEEDS = 10
USUAL_METHODS = ("er", "der", "derpp", "sncl")
Values = dict[str, dict[str, dict[str, dict[str, dict[str, list[float]]]]]]

NO_GATES = {"gates": "off"}
OFF = {"alpha": "0", "gamma": "0", "admission": "reservoir"} | NO_GATES
VBS, FER, LRS = ("gates",), ("alpha", "gamma"), ("admission",)
ADDITIONS = {
    "ace",
    "momentum",
    "weight_decay",
    "augment",
    "lr_drop",
}  # settings that only runs outside its protocol have


def with_only(*parts: str) -> dict[str, str]:
    """The changes that leave these parts of SNCL as they are and switch the others off."""
    return {name: neutral for name, neutral in OFF.items() if name not in parts}


# The paper counts the labels of the memory (alpha) to FER. "+labels" and "+features", which it has not, take FER apart.
SNCL_VARIANTS: dict[str, dict[str, dict[str, str]]] = {
    "ablation": {
        "baseline": with_only(),
        "+labels": with_only("alpha"),
        "+features": with_only("gamma"),
        "+VBS": with_only(*VBS),
        "+FER": with_only(*FER),
        "+LRS": with_only(*LRS),
        "+VBS+FER": with_only(*VBS, *FER),
        "+VBS+LRS": with_only(*VBS, *LRS),
        "+FER+LRS": with_only(*FER, *LRS),
        "SNCL": with_only(*VBS, *FER, *LRS),
    },
    "layers": {
        "baseline": with_only(),
        "FER-on-layer1": {**NO_GATES, "features": "layer1"},
        "VBS+FER-on-layer1": {"features": "layer1"},
        "FER-on-layer2": {**NO_GATES, "features": "layer2"},
        "VBS+FER-on-layer2": {"features": "layer2"},
        "FER-on-layer1&2": NO_GATES,
        "VBS+FER-on-layer1&2": {},
    },
}

# Rows beside those of the shipped settings, for what the published settings leave open: stream -> method -> changes.
FURTHER_ROWS: dict[str, dict[str, dict[str, dict[str, str]]]] = {
    "perm-mnist": {"oewc": {"oEWC, strength 7": {"strength": "7"}}},
}


class Published(NamedTuple):
    """A number of the paper; the deviation is None where none is printed."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Cell:
    """One experiment of a table, over all seeds; ``settings`` are changes, as text."""

    title: str
    stream: str
    method: str
    memory: int
    settings: dict[str, str]
    paper: dict[str, Published]  # by read-out


@cache
def values() -> Values:
    """table -> stream -> row -> memory -> read-out -> mean and, where printed, deviation."""
    return tomllib.loads(files("sncl.paper").joinpath("paper.toml").read_text())


def published(table: str, stream: str, row: str, memory: int) -> dict[str, Published]:
    """What the paper prints for this row, by read-out; empty where it prints nothing."""
    printed = values()[table][stream].get(row, {}).get(str(memory), {})
    return {readout: Published(*numbers) for readout, numbers in printed.items()}


def published_for(stream: str, method: str, memory: int, settings: Settings) -> dict[str, Published]:
    """What the paper prints for runs with these settings, by read-out; empty where it prints nothing.

    SNCL with the parts that are shipped for the stream is the whole SNCL, even where some of them are off there; with
    others it is the row of the ablation that has just these. Nothing is printed of runs with additions.
    """
    if ADDITIONS & settings.keys():
        return {}
    rows = [("table1", method), ("table2", method)]
    if method == "sncl":
        shipped = METHODS[method].settings | defaults(stream, method, memory)
        if (off := switched_off(settings)) != switched_off(shipped):
            variants = SNCL_VARIANTS["ablation"].items()
            rows = [("ablation", title) for title, changes in variants if changes.keys() & OFF.keys() == off]
    found = [published(table, stream, row, memory) for table, row in rows if stream in values()[table]]
    return next((each for each in found if each), {})


def additions(stream: str, method: str, memory: int) -> Settings:
    """What a method with additions has that the plain one has not, or has otherwise; nothing for a plain one."""
    if not (plain := METHODS[method].plain):
        return {}
    without, with_them = (METHODS[name].settings | defaults(stream, name, memory) for name in (plain, method))
    return {key: value for key, value in with_them.items() if without.get(key) != value}


def switched_off(settings: Settings) -> set[str]:
    """The parts of SNCL that have their neutral value, by the setting that switches each of them off."""
    return {name for name, neutral in OFF.items() if str(settings.get(name, "")) in (neutral, f"{neutral}.0")}


def printed_readouts(table: str, stream: str) -> list[str]:
    """The read-outs this table has for this stream, in the usual order."""
    rows = values()[table][stream].values()
    present = {readout for memories in rows for numbers in memories.values() for readout in numbers}
    return [readout for readout in READOUT_TITLES if readout in present]


def usual_streams(table: str) -> list[str]:
    """Those that need no GPU."""
    return [stream for stream in values()[table] if STREAMS[stream].network == "mlp"]


def cells(
    table: str, streams: Collection[str] = (), methods: Collection[str] = (), memories: Collection[int] = ()
) -> list[Cell]:
    """The cells of a table by stream, memory and row. What is not chosen is the usual: see the functions above."""
    if table not in values():
        near = suggestion(nearest(table, values()))
        raise SnclError(f"there is no table {table!r}; {near}the known ones are {', '.join(values())}")
    streams = [stream if stream in values()[table] else stream_name(stream) for stream in streams]
    for stream in streams:
        if stream not in values()[table]:
            raise SnclError(f"{table} has no stream {stream!r}; it has {', '.join(values()[table])}")
    if methods and table in SNCL_VARIANTS:
        raise SnclError(f"the rows of {table} are variants of sncl; `method` is for table1 and table2")
    for memory in memories:
        if memory < 1:
            raise SnclError(f"`memory` is at least 1 sample, not {memory}")
    methods = [method_name(method) for method in methods]
    return [
        Cell(title, stream, method, memory, settings, published(table, stream, row, memory))
        for stream in values()[table]
        if stream in (streams or usual_streams(table))
        for memory in (0, *sorted(memories or printed_memories(table, stream)))
        for row, title, method, settings in rows_of(table, stream, methods or USUAL_METHODS)
        if METHODS[method].memory == (memory > 0)
    ]


def rows_of(table: str, stream: str, methods: Collection[str]) -> list[tuple[str, str, str, dict[str, str]]]:
    """The rows of a table for a stream: printed as what, title, method, and changes of its settings."""
    if table in SNCL_VARIANTS:
        return [(title, title, "sncl", settings) for title, settings in SNCL_VARIANTS[table].items()]
    found: list[tuple[str, str, str, dict[str, str]]] = []
    for method, each in METHODS.items():
        if method in methods:
            further = FURTHER_ROWS.get(stream, {}).get(method, {})
            found.append((method, each.title, method, {}))
            found += [(method, title, method, settings) for title, settings in further.items()]
    return found


def printed_memories(table: str, stream: str) -> set[int]:
    """The sizes of the memory this table has for this stream."""
    return {int(memory) for memories in values()[table][stream].values() for memory in memories} - {0}
