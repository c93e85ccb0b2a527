"""What came of a run: the one type that ``result.json`` is written from and read into."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from sncl.errors import SnclError
from sncl.evaluation.by_class import ByClass
from sncl.evaluation.collapse import Collapse
from sncl.methods.table import Settings
from sncl.training.checkpoint import check_seal, read_json, sealed, write_json

RESULT = "result.json"
WRITTEN_AGAIN = "move it away to have it written again"
LARGEST = 1e300  # a number beyond overflows as soon as it is used
TaskAccuracies = list[float | None]  # accuracy in percent by task; None where it was not measured

JsonKind = type | tuple[type, ...]
NUMBER: JsonKind = (int, float)
OPTIONAL_NUMBER: JsonKind = (int, float, type(None))
OPTIONAL_DICT: JsonKind = (dict, type(None))
OPTIONAL_LIST: JsonKind = (list, type(None))

MEASURE_KINDS: dict[str, JsonKind] = {
    "accuracy": NUMBER,
    "accuracy_matrix": list,
    "untrained": OPTIONAL_LIST,
    **dict.fromkeys(("forgetting", "bwt", "fwt"), OPTIONAL_NUMBER),
}
MANIFEST_KINDS: dict[str, JsonKind] = {
    **dict.fromkeys(("protocol", "data", "device", "precision", "engine"), str),
    **dict.fromkeys(("versions", "settings"), dict),
    **dict.fromkeys(("threads", "epochs", "tasks"), int),
    "validation": NUMBER,
}
COLLAPSE_KINDS: dict[str, JsonKind] = {"task": int, "recall": NUMBER, "chance": NUMBER}
BY_CLASS_KINDS: dict[str, JsonKind] = {
    **dict.fromkeys(("balanced_accuracy", "majority"), NUMBER),
    **dict.fromkeys(("samples", "recall"), list),
    "confusion": OPTIONAL_LIST,
}
RESULT_KINDS: dict[str, JsonKind] = {
    **dict.fromkeys(("stream", "method", "scored_on"), str),
    **dict.fromkeys(("memory", "seed", "steps", "parameters", "memory_bytes_per_sample"), int),
    "seconds": NUMBER,
    "active_fraction": OPTIONAL_NUMBER,
    **dict.fromkeys(("open_by_task", "class_names", "task_names"), OPTIONAL_LIST),
    **dict.fromkeys(("open_by_layer", "accuracy_variants"), OPTIONAL_DICT),
}
MATRIX = "accuracy_matrix"
COPIED = (MATRIX, "forgetting", "bwt", "fwt")  # of the first read-out, at the top of the file


@dataclass(frozen=True)
class Measures:
    """One read-out: the accuracy matrix in percent and what follows from it; None without task boundaries."""

    accuracy: float
    accuracy_matrix: list[TaskAccuracies]
    untrained: TaskAccuracies | None
    forgetting: float | None
    bwt: float | None
    fwt: float | None

    def __repr__(self) -> str:
        tasks = f"{len(self.accuracy_matrix[0])} task{'s' * (len(self.accuracy_matrix[0]) != 1)}"
        return f"Measures({self.accuracy:.2f} % on {tasks})"


@dataclass(frozen=True)
class Manifest:
    """How a run was made: by which versions, where, on which data (a fingerprint), with which settings."""

    protocol: str
    data: str
    versions: dict[str, str]
    device: str
    threads: int
    precision: str
    engine: str
    epochs: int
    tasks: int
    validation: float
    settings: Settings


@dataclass(frozen=True)
class Result:
    """What a finished run measured, and how it was made."""

    stream: str
    method: str
    memory: int
    seed: int
    measures: dict[str, Measures]  # by read-out; the first is the main one
    steps: int
    seconds: float
    memory_bytes_per_sample: int
    parameters: int
    active_fraction: float | None  # of all gated neurons; None where there are no gates
    open_by_task: list[float] | None
    open_by_layer: dict[str, float] | None
    accuracy_variants: dict[str, dict[str, float]] | None  # without what only matters in evaluation
    scored_on: str
    manifest: Manifest
    class_names: list[str] | None = None
    task_names: list[str] | None = None
    collapsed: list[Collapse] | None = None  # the tasks that were not learned; None where an older version did not say
    by_class: ByClass | None = None  # of the main read-out after the last task; None as above

    def __repr__(self) -> str:
        memory = f"memory {self.memory}, " if self.memory else ""
        numbers = [f"{readout} {value:.2f} %" for readout, value in self.accuracy.items()]
        numbers += [] if self.forgetting is None else [f"forgetting {self.forgetting:.2f}"]
        numbers += ["collapsed"] * self.has_collapsed
        return f"Result({self.method} on {self.stream}, {memory}seed {self.seed}: {', '.join(numbers)})"

    @property
    def main(self) -> Measures:
        return next(iter(self.measures.values()))

    @property
    def accuracy(self) -> dict[str, float]:
        """The average over all tasks after the last one, by read-out."""
        return {readout: measure.accuracy for readout, measure in self.measures.items()}

    @property
    def accuracy_matrix(self) -> list[TaskAccuracies]:
        return self.main.accuracy_matrix

    @property
    def has_collapsed(self) -> bool:
        return bool(self.collapsed)

    @property
    def balanced_accuracy(self) -> float | None:
        return None if self.by_class is None else self.by_class.balanced_accuracy

    @property
    def majority(self) -> float | None:
        """The accuracy of always answering the most frequent class."""
        return None if self.by_class is None else self.by_class.majority

    @property
    def forgetting(self) -> float | None:
        return self.main.forgetting

    @property
    def bwt(self) -> float | None:
        return self.main.bwt

    @property
    def fwt(self) -> float | None:
        return self.main.fwt

    def to_json(self) -> dict[str, Any]:
        """The content of ``result.json``. Names that there are none of are left out, and what is not known."""
        told: dict[str, Any] = {}
        if self.collapsed is not None:
            told["collapsed"] = [each._asdict() for each in self.collapsed]
        if self.by_class is not None:
            told["by_class"] = asdict(self.by_class)
        names = {key: value for key in ("class_names", "task_names") if (value := getattr(self, key))}
        return {
            **{key: getattr(self, key) for key in ("stream", "method", "memory", "seed", "accuracy", *COPIED)},
            "measures": {readout: dict(vars(measure)) for readout, measure in self.measures.items()},
            **{key: getattr(self, key) for key in ("steps", "seconds", "memory_bytes_per_sample", "parameters")},
            **{key: getattr(self, key) for key in ("active_fraction", "open_by_task", "open_by_layer")},
            "accuracy_variants": self.accuracy_variants,
            **told,
            **names,
            "scored_on": self.scored_on,
            "manifest": asdict(self.manifest),
        }

    @classmethod
    def from_json(cls, facts: Any, path: Path | str = RESULT) -> Self:
        """The inverse of :meth:`to_json`; one sentence that names ``path`` where something is missing or wrong."""
        try:
            parts = expect(facts, {"measures": dict, "manifest": dict})
            if not parts["measures"]:
                raise ValueError("it holds no measures")
            first = next(iter(parts["measures"]))
            measures = {
                readout: measures_from(each, facts.get(MATRIX) if readout == first else None)
                for readout, each in parts["measures"].items()
            }
            manifest = Manifest(**expect(parts["manifest"], MANIFEST_KINDS))
            optional: dict[str, Any] = {
                "collapsed": collapsed_from(facts.get("collapsed")),
                "by_class": by_class_from(facts.get("by_class")),
            }
            found = cls(measures=measures, manifest=manifest, **optional, **expect(facts, RESULT_KINDS))
            check_parts(found)
            for key in ("accuracy", *COPIED):
                if facts.get(key) != getattr(found, key):
                    raise ValueError(f"{key!r} is not that of its measures")
        except ValueError as error:
            raise SnclError(f"{path} is damaged: {error}; {WRITTEN_AGAIN}") from error
        return found


def expect(facts: Any, kinds: dict[str, JsonKind]) -> dict[str, Any]:
    """The values under these keys, each of its kind; one that may be None may also be absent."""
    if not isinstance(facts, dict):
        raise ValueError("it holds no result")
    found = {key: facts.get(key) for key in kinds}
    for key, kind in kinds.items():
        if not isinstance(found[key], kind) or not is_plain(found[key]):
            raise ValueError(f"{key!r} is missing or of the wrong kind")
    return found


def is_plain(value: Any) -> bool:
    """Whether something, if it is a number, is one that can be computed with."""
    return not isinstance(value, int | float) or (value == value and abs(value) <= LARGEST)


def measures_from(facts: Any, matrix: Any = None) -> Measures:
    """One read-out; ``matrix`` is that of the first, which may lie elsewhere."""
    if matrix is not None and isinstance(facts, dict):
        facts = {MATRIX: matrix} | facts
    found = Measures(**expect(facts, MEASURE_KINDS))
    rows: list[Any] = list(found.accuracy_matrix)
    if not rows or not all(isinstance(row, list) and is_accuracies(row) and len(row) == len(rows[0]) for row in rows):
        raise ValueError("it holds no matrix of accuracies")
    if found.untrained is not None and not is_accuracies(found.untrained):
        raise ValueError("'untrained' holds no accuracies")
    return found


def collapsed_from(facts: Any) -> list[Collapse] | None:
    """The tasks that were not learned; older files do not say."""
    if facts is None:
        return None
    if not isinstance(facts, list):
        raise ValueError("'collapsed' is of the wrong kind")
    return [Collapse(**expect(each, COLLAPSE_KINDS)) for each in facts]


def by_class_from(facts: Any) -> ByClass | None:
    """What the file says of each class; older files do not."""
    if facts is None:
        return None
    found = ByClass(**expect(facts, BY_CLASS_KINDS))
    found.check()
    return found


def is_accuracies(values: Iterable[Any]) -> bool:
    return all(value is None or (isinstance(value, int | float) and is_plain(value)) for value in values)


def check_parts(result: Result) -> None:
    """Refuse lists and dictionaries that hold something else than they should."""
    variants: Iterable[Any] = (result.accuracy_variants or {}).values()
    numbers: list[Iterable[Any]] = [result.open_by_task or [], (result.open_by_layer or {}).values()]
    numbers += [each.values() if isinstance(each, dict) else ["none"] for each in variants]
    if not all(map(is_accuracies, numbers)):
        raise ValueError("it holds something that is no number")
    texts: list[Any] = [*(result.class_names or []), *(result.task_names or []), *result.manifest.versions.values()]
    settings = result.manifest.settings.values()
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("it holds a name that is no text")
    if not all(isinstance(value, str) or is_accuracies([value]) for value in settings):
        raise ValueError("its settings are no texts and numbers")


def read_result(path: Path) -> Result:
    """The result in a file; one sentence that names it where it is damaged."""
    return Result.from_json(check_seal(path, read_json(path), WRITTEN_AGAIN), path)


def write_result(path: Path, result: Result) -> None:
    """Write a result, with a checksum. The matrix of the first read-out, which has a million numbers for a thousand
    tasks, is kept at the top alone."""
    facts = result.to_json()
    first, measure = next(iter(facts["measures"].items()))
    terse = {key: value for key, value in measure.items() if key != MATRIX}
    write_json(path, sealed(facts | {"measures": facts["measures"] | {first: terse}}))
