"""The identity of a run: everything that decides its numbers.

A run folder holds ``experiment.json`` (what is run), ``preprocessing.json`` (how raw samples become inputs),
``checkpoint.safetensors`` (where it is, and in the end the trained network), ``log.jsonl`` and, once finished,
``result.json``; on demand also ``task-01.safetensors`` and so on,
the network after each task, ``tensorboard/``, and ``sparsity.json``, which an analysis leaves for the report.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sncl.errors import SnclError
from sncl.methods.table import METHODS, Settings
from sncl.runs.result import NUMBER, OPTIONAL_DICT, JsonKind, expect, is_accuracies
from sncl.training.checkpoint import check_seal, read_json
from sncl.training.folder import DATA

if TYPE_CHECKING:
    from sncl.streams.user.identity import UserData

PROTOCOL = "2020.1"  # docs/faithfulness.md; raised when a change moves numbers
EXPERIMENT = "experiment.json"
PREPROCESSING = "preprocessing.json"  # how raw samples become the learner's; runs of earlier versions have none
BROUGHT_BACK = "bring back the file as it was, or choose another `out`"
FORMAT = 2  # of run folders; those of sncl 0.1 name none
PATH = "path"  # where the user's data lay
FILES = "files"  # the stamp of a benchmark's files, which tells that the data are still the same without reading them
CODE = "code"  # of a method that is none of ours
PLACE = (PATH, FILES)  # written down, but data at another place do not make another run
DESCRIBED_KINDS: dict[str, JsonKind] = {
    **dict.fromkeys(("stream", "method", "device", "precision", "engine", "protocol"), str),
    **dict.fromkeys(("memory", "seed", "epochs", "tasks", "threads"), int),
    "validation": NUMBER,
    "user_data": OPTIONAL_DICT,
    **dict.fromkeys((DATA, FILES, CODE), (str, type(None))),
}
LAST_BITS = ("device", "precision", "engine", "threads")  # move the last bits of a result, not what it is a result of


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the numbers. ``settings`` are complete: defaults and what was set by hand.

    ``user_data`` says what the stream is made of where it is none of `sncl list`. ``data`` is the fingerprint of a
    benchmark's data; None until they are read. ``code`` is the fingerprint of a method that is none of `sncl list`.
    """

    stream: str
    method: str
    memory: int
    seed: int
    epochs: int
    tasks: int
    validation: float
    device: str
    precision: str
    engine: str
    threads: int
    settings: Settings
    user_data: UserData | None = None
    data: str | None = None
    code: str | None = None

    def identity(self) -> dict[str, Any]:
        facts = asdict(self) | {"protocol": PROTOCOL}
        del facts["user_data"]
        data = facts.pop(DATA)
        facts |= {} if facts.pop(CODE) is None else {CODE: self.code}
        if self.user_data is None:
            return facts if data is None else facts | {DATA: data}
        return facts | {"user_data": self.user_data.deciding()}

    def described(self, stamp: str | None = None) -> dict[str, Any]:
        """What ``experiment.json`` says: the identity, its format, and where the data lay: the path of the user's, the
        ``stamp`` of a benchmark's files."""
        place = {FILES: stamp} if self.user_data is None else {PATH: self.user_data.path}
        return self.identity() | {"format": FORMAT} | {key: value for key, value in place.items() if value is not None}

    def name(self) -> str:
        """A folder name that no other experiment has: it is known before the data are read."""
        identity = {key: value for key, value in self.identity().items() if key != DATA}
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
        return f"{file_name(self.stream)}-{file_name(self.method)}-{self.memory}-seed{self.seed}-{digest}"


def read_described(folder: Path) -> dict[str, Any]:
    """What ``experiment.json`` in ``folder`` says, without its format; a run of another version is refused."""
    path = folder / EXPERIMENT
    stored = read_json(path)
    if not isinstance(stored, dict) or not isinstance(stored.get("settings"), dict):
        raise SnclError(f"{path} is damaged: it names no settings")
    version = stored.get("format")
    if version != FORMAT:
        maker = "sncl 0.1" if version is None else f"another version of sncl (format {version}, here {FORMAT})"
        raise SnclError(
            f"{folder} was made by {maker}, whose runs cannot be read here; make the run again in another folder, or "
            "use that version"
        )
    facts = check_seal(path, stored, BROUGHT_BACK)
    stored = {key: value for key, value in facts.items() if key != "format"}
    try:
        expect(stored, DESCRIBED_KINDS)
        if not all(isinstance(value, str) or is_accuracies([value]) for value in stored["settings"].values()):
            raise ValueError("its settings are no texts and numbers")
    except ValueError as error:
        raise SnclError(f"{path} is damaged: {error}") from error
    return stored


def refuse_gone(folder: Path, described: dict[str, Any]) -> None:
    """Refuse a run that was made with a choice which only earlier versions have."""
    known = METHODS.get(described["method"])
    if known is not None and (gone := known.gone_in(described["settings"])):
        raise SnclError(
            f"{folder} was made by an earlier version of sncl: {gone}; make the run again in another folder, or use "
            "that version"
        )


def file_name(name: str) -> str:
    """The name of a stream or a method as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", name)


def deciding(identity: dict[str, Any]) -> dict[str, Any]:
    """What decides a result, apart from the seed and a benchmark's data, of what :meth:`Experiment.identity` says."""
    return {key: value for key, value in identity.items() if key not in (*LAST_BITS, *PLACE, DATA, "seed")}


def decision(identity: dict[str, Any]) -> str:
    """:func:`deciding` as text: the same for runs that differ in nothing but the seed."""
    return json.dumps(deciding(identity), sort_keys=True)
