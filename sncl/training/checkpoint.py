"""Files that are either complete or not there: tensors as safetensors, everything else as JSON.

A checkpoint is one safetensors file whose header carries the JSON, so the two can never disagree, and a checksum over
both. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from sncl.errors import SnclError
from sncl.tensors.fields import Fields

HEADER = "sncl"
CHECKSUM = "crc32"
NUMBERS = re.compile(r'\[\n([^][{}"]+)\n *\]')  # a list of them in indented JSON; no string holds the end of a line


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: whoever reads it, even after a crash or power loss, finds the old or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        if os.name == "posix":  # the new name survives a power loss once its folder is written, too
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SnclError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, with a row of numbers on one line: the matrix of many tasks has a million."""
    text = json.dumps(value, indent=2, allow_nan=False)
    write_atomically(path, (NUMBERS.sub(_on_one_line, text) + "\n").encode())


def _on_one_line(numbers: re.Match[str]) -> str:
    return f"[{''.join(numbers[1].split())}]"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} is damaged or cannot be read ({error}); move it away to start over") from error


def checkpoint_checksum(tensors: Fields, description: str) -> str:
    """CRC-32 over the description and every tensor with its name, type and shape."""
    value = zlib.crc32(description.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def pack(tensors: Fields, description: dict[str, Any]) -> bytes:
    """Tensors and a JSON description as the content of one file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    return save(plain, metadata={HEADER: text, CHECKSUM: checkpoint_checksum(plain, text)})


def unpack(content: bytes) -> tuple[Fields, dict[str, Any]]:
    """The inverse of :func:`pack`; an error of some kind if this is not what it made."""
    tensors = load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    if checkpoint_checksum(tensors, header[HEADER]) != header[CHECKSUM]:
        raise ValueError("its checksum does not fit")
    return tensors, json.loads(header[HEADER])


def write_checkpoint(path: Path, tensors: Fields, description: dict[str, Any]) -> None:
    """Write tensors and a JSON description as one file."""
    write_atomically(path, pack(tensors, description))


def read_checkpoint(path: Path) -> tuple[Fields, dict[str, Any]]:
    """The tensors and the description of a checkpoint.

    Read in one go: ``safe_open`` opens the file twice, and may find an old header and new tensors beside a writer.
    """
    try:
        return unpack(path.read_bytes())
    except FileNotFoundError as error:
        raise SnclError(f"there is no checkpoint {path}") from error
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise SnclError(f"{path} is no sncl checkpoint, or damaged ({error}); move it away to start over") from error
