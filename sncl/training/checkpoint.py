"""Files that are either complete or not there: tensors as safetensors, everything else as JSON.

A checkpoint is one safetensors file whose header carries the JSON, so the two can never disagree. Nothing is ever
unpickled.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from sncl.errors import SnclError
from sncl.tensors.fields import Fields

HEADER = "sncl"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: whoever reads it, even after a crash or power loss, finds the old or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SnclError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} is damaged or cannot be read ({error}); move it away to start over") from error


def write_checkpoint(path: Path, tensors: Fields, description: dict[str, Any]) -> None:
    """Write tensors and a JSON description as one file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={HEADER: json.dumps(description)}))


def read_checkpoint(path: Path) -> tuple[Fields, dict[str, Any]]:
    """The tensors and the description of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})[HEADER])
            return {name: file.get_tensor(name) for name in file.keys()}, description  # noqa: SIM118
    except FileNotFoundError as error:
        raise SnclError(f"there is no checkpoint {path}") from error
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise SnclError(f"{path} is no sncl checkpoint, or damaged ({error}); move it away to start over") from error
