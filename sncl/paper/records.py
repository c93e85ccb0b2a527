"""Results that are there already, in run folders or as lines of a results file, found by what decides them.

Device, precision, engine and threads move the last bits of a result, not what it is a result of. So a run that was
made on another machine and copied here counts; one with another setting, or of another protocol, does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.paper.tables import Cell
from sncl.runs.experiment import EXPERIMENT, Experiment, decision, read_described
from sncl.runs.result import RESULT, Result, read_result
from sncl.streams.benchmarks import named
from sncl.training.checkpoint import write_atomically
from sncl.training.folder import DATA

Record = dict[str, Any]
Known = dict[str, dict[int, Record]]  # by everything but the seed, then by seed

RUN_NAMES = ("stream", "method", "memory", "seed")
DECIDING = ("settings", "epochs", "tasks", "protocol")
MADE_BY = ("device", "precision", "engine", "versions")
MEASURED = (
    *("steps", "accuracy", "forgetting", "bwt", "fwt"),
    *("active_fraction", "open_by_task", "memory_bytes_per_sample", "seconds", "accuracy_variants"),
)
FIELDS = (*RUN_NAMES, "title", *DECIDING, *MADE_BY, *MEASURED)
COLLAPSED_TASKS = "collapsed"  # their numbers; lines that are older do not say


@dataclass(frozen=True)
class TableRow:
    """A cell of a table with what is known of it: the wanted seeds 0 .. ``seeds`` - 1, and any others there are."""

    cell: Cell
    experiment: Experiment  # that of seed 0
    seeds: int
    records: dict[int, Record]

    def missing(self) -> list[int]:
        return [seed for seed in range(self.seeds) if seed not in self.records]

    def wanted(self) -> int:
        return len(self.records) + len(self.missing())

    def collapsed(self) -> list[int]:
        """The seeds of runs that are known to have collapsed."""
        return sorted(seed for seed, record in self.records.items() if record.get(COLLAPSED_TASKS))

    def reach(self) -> int:
        """How many seeds to ask for to have all of them."""
        return max([self.seeds, *(seed + 1 for seed in self.records)])


def rounded_floats(value: Any) -> Any:
    """All floats in it with four digits behind the point."""
    if isinstance(value, dict):
        return {key: rounded_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded_floats(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def results_line(result: Result) -> Record:
    """What a results file keeps of ``result.json``, and the fingerprint of its data, by which runs are compared.

    Settings are not rounded: they have to agree exactly.
    """
    return (
        {key: getattr(result, key) for key in RUN_NAMES}
        | {DATA: result.manifest.data}
        | {key: getattr(result.manifest, key) for key in (*DECIDING, *MADE_BY)}
        | {key: rounded_floats(getattr(result, key)) for key in MEASURED}
        | ({} if result.collapsed is None else {COLLAPSED_TASKS: [each.task for each in result.collapsed]})
    )


def finished(runs: Path) -> Iterator[tuple[Path, str, Record]]:
    """The finished runs below a folder. A file that cannot be read is left to the run it belongs to, which names it."""
    for path in sorted(runs.rglob(EXPERIMENT)):
        if not (path.parent / RESULT).exists():
            continue
        try:
            experiment, found = read_described(path.parent), results_line(read_result(path.parent / RESULT))
            if any(found[key] != experiment[key] for key in RUN_NAMES):
                continue
        except (SnclError, KeyError, TypeError):
            continue
        yield path.parent, decision(experiment), found
        plain = as_trained(found)
        if plain is not None:
            yield path.parent, decision(experiment | {"settings": plain["settings"]}), plain


def as_trained(found: Record) -> Record | None:
    """The result of the same run without the average of its weights, which training never sees."""
    accuracy = (found["accuracy_variants"] or {}).get("as_trained")
    if accuracy is None:
        return None
    settings = found["settings"]
    changed = {
        "settings": settings | {"ema": 0.0},
        "accuracy": accuracy,
        "accuracy_variants": {f"averaged by {settings['ema']}": found["accuracy"]},
    }
    judged = {key: value for key, value in found.items() if key != COLLAPSED_TASKS}  # with the average
    return judged | dict.fromkeys(("forgetting", "bwt", "fwt")) | changed


def in_folders(runs: Path) -> Iterator[tuple[str, Record]]:
    return ((what, found) for _, what, found in finished(runs))


def folders_of(rows: Iterable[TableRow], runs: Path) -> list[Path]:
    """The run folders below ``runs`` that these rows are about; a row may also stand for a line of a file."""
    wanted = {decision(row.experiment.identity()) for row in rows}
    return list(dict.fromkeys(folder for folder, what, _ in finished(runs) if what in wanted))


def data_of(rows: Iterable[TableRow]) -> dict[str, str]:
    """The fingerprint of each data set that runs of these rows were made with, by its name; a line tells none.

    Runs with different data are refused: they are not to be put beside each other.
    """
    found: dict[str, str] = {}
    for row in rows:
        for each in row.records.values():
            data = each.get(DATA)
            if data and found.setdefault(named(row.cell.stream).dataset, data) != data:
                raise SnclError(
                    f"the runs of this table on {row.cell.stream} were made with different data; move those of one "
                    "version away from `runs`"
                )
    return found


def read_lines(path: Path) -> list[Record]:
    """The lines of a results file; none where there is no file."""
    if not path.exists():
        return []
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} cannot be read ({error}); mend it or move the file away") from error
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SnclError(f"line {number} of {path} is no JSON ({error}); mend it or move the file away") from error
        if not isinstance(line, dict) or any(field not in line for field in FIELDS):
            raise SnclError(f"line {number} of {path} is no result; a line has {', '.join(FIELDS)}")
        lines.append(line)
    return lines


def of_lines(lines: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    for line in lines:
        decided = {key: line[key] for key in (*RUN_NAMES, *DECIDING)} | {"validation": 0.0}
        yield decision(decided), line


def known(runs: Path, lines: Iterable[Record]) -> Known:
    """All results by what they are results of; a run folder goes before a line."""
    found: Known = {}
    for what, each in (*in_folders(runs), *of_lines(lines)):
        found.setdefault(what, {}).setdefault(each["seed"], each)
    return found


def write_lines(path: Path, rows: Iterable[TableRow]) -> None:
    """Replace a results file: one line a run, sorted."""
    lines = [each | {"title": row.cell.title} for row in rows for each in row.records.values()]
    lines.sort(key=lambda line: (line["stream"], line["method"], line["memory"], line["title"], line["seed"]))
    fields = (*FIELDS, COLLAPSED_TASKS)
    text = "".join(json.dumps({field: line[field] for field in fields if field in line}) + "\n" for line in lines)
    write_atomically(path, text.encode())
