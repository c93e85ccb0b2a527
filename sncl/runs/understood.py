"""How the user's data were understood, kept beside the runs on them for as long as the files stay as they are.

Reading the data tells the same again, and takes torch and the longer the larger they are: too much for showing a
finished run. Whether files stayed as they are is said by :mod:`sncl.streams.user.stamp`; those that changed are read.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import sncl
from sncl.errors import SnclError
from sncl.runs.experiment import FILES, PROTOCOL, file_name
from sncl.runs.result import JsonKind, expect
from sncl.streams.user.identity import UserData
from sncl.streams.user.spec import DataSpec
from sncl.streams.user.stamp import stamp_of_files
from sncl.training.checkpoint import CHECKSUM, read_json, sealed, unsealed, write_json

KINDS: dict[str, JsonKind] = {FILES: str, "user_data": dict, "notes": list}


class Understood(NamedTuple):
    """What is known of the user's data, what was said of it, and the stamp of their files before they were read."""

    user_data: UserData
    notes: list[str]
    stamp: str | None


def remember(folder: Path, spec: DataSpec, found: Understood) -> None:
    """Write down beside the runs in ``folder`` how data were understood, if their files are still as they were."""
    if found.stamp is None or not folder.is_dir() or found.stamp != stamp_of_files(spec):
        return
    facts = {FILES: found.stamp, "user_data": asdict(found.user_data), "notes": found.notes}
    with suppress(OSError):  # without it, the data are read again
        write_json(place_of(folder, spec), sealed(facts))


def recall(folder: Path, spec: DataSpec) -> Understood | None:
    """How data were understood, if that was written down and no file has changed since."""
    path = place_of(folder, spec)
    try:
        facts = read_json(path) if path.exists() else {}
        if CHECKSUM not in facts:
            return None
        found = expect(unsealed(facts), KINDS)
        data = UserData(**found["user_data"])
    except (SnclError, ValueError, TypeError, RecursionError, OSError):  # damaged: the data are read again
        return None
    return Understood(data, found["notes"], found[FILES]) if found[FILES] == stamp_of_files(spec) else None


def place_of(folder: Path, spec: DataSpec) -> Path:
    """A file for these data, under these options, as this version understands them."""
    asked = [asdict(spec) | {"path": str(spec.path)}, sncl.__version__, PROTOCOL]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f".{file_name(spec.name)}-{digest}.json"
