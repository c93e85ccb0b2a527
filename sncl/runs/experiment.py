"""The identity of a run: everything that decides its numbers.

A run folder holds ``experiment.json`` (what is run), ``checkpoint.safetensors`` (where it is, and in the end the
trained network), ``log.jsonl`` and, once finished, ``result.json``; on demand also ``task-01.safetensors`` and so on,
the network after each task, and ``tensorboard/``.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.methods.table import Settings
from sncl.runs.result import NUMBER, OPTIONAL_DICT, JsonKind, expect, is_accuracies
from sncl.streams.user.data import UserData
from sncl.training.checkpoint import read_json

PROTOCOL = "2020.1"  # docs/faithfulness.md; raised when a change moves numbers
EXPERIMENT = "experiment.json"
FORMAT = 2  # of run folders; those of sncl 0.1 name none
PATH = "path"  # where the user's data lay: written down, but another place does not make another run
DESCRIBED_KINDS: dict[str, JsonKind] = {
    **dict.fromkeys(("stream", "method", "device", "precision", "engine", "protocol"), str),
    **dict.fromkeys(("memory", "seed", "epochs", "tasks", "threads"), int),
    "validation": NUMBER,
    "user_data": OPTIONAL_DICT,
}
LAST_BITS = ("device", "precision", "engine", "threads")  # move the last bits of a result, not what it is a result of


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the numbers. ``settings`` are complete: defaults and what was set by hand.

    ``user_data`` says what the stream is made of where it is none of `sncl list`.
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

    def identity(self) -> dict[str, Any]:
        facts = asdict(self) | {"protocol": PROTOCOL}
        user_data = facts.pop("user_data")
        if user_data is None:
            return facts
        return facts | {"user_data": {key: value for key, value in user_data.items() if key != PATH}}

    def described(self) -> dict[str, Any]:
        """What ``experiment.json`` says: the identity, its format, and where the user's data lay."""
        return self.identity() | {"format": FORMAT} | ({} if self.user_data is None else {PATH: self.user_data.path})

    def name(self) -> str:
        """A folder name that no other experiment has."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]
        return f"{file_name(self.stream)}-{self.method}-{self.memory}-seed{self.seed}-{digest}"


def read_described(folder: Path) -> dict[str, Any]:
    """What ``experiment.json`` in ``folder`` says, without its format; a run of another version is refused."""
    stored = read_json(folder / EXPERIMENT)
    if not isinstance(stored, dict) or not isinstance(stored.get("settings"), dict):
        raise SnclError(f"{folder / EXPERIMENT} is damaged: it names no settings")
    version = stored.pop("format", None)
    if version != FORMAT:
        maker = "sncl 0.1" if version is None else f"another version of sncl (format {version}, here {FORMAT})"
        raise SnclError(
            f"{folder} was made by {maker}, whose runs cannot be read here; make the run again in another folder, or "
            "use that version"
        )
    try:
        expect(stored, DESCRIBED_KINDS)
        if not all(isinstance(value, str) or is_accuracies([value]) for value in stored["settings"].values()):
            raise ValueError("its settings are no texts and numbers")
    except ValueError as error:
        raise SnclError(f"{folder / EXPERIMENT} is damaged: {error}") from error
    return stored


def file_name(stream: str) -> str:
    """A stream's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", stream)


def deciding(identity: dict[str, Any]) -> dict[str, Any]:
    """What decides a result, apart from the seed, of what :meth:`Experiment.identity` says."""
    return {key: value for key, value in identity.items() if key not in (*LAST_BITS, PATH, "seed")}


def decision(identity: dict[str, Any]) -> str:
    """:func:`deciding` as text: the same for runs that differ in nothing but the seed."""
    return json.dumps(deciding(identity), sort_keys=True)
