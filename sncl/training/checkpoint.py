"""Files that are either complete or not there: tensors as safetensors, everything else as JSON.

A checkpoint is one safetensors file whose header carries the JSON, so the two can never disagree, and a checksum over
both. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import copyfile
from threading import get_native_id
from typing import IO, TYPE_CHECKING, Any

from safetensors import SafetensorError

from sncl.errors import SnclError

if TYPE_CHECKING:  # what is JSON only is read without torch
    from sncl.tensors.fields import Fields

HEADER = "sncl"
CHECKSUM = "crc32"
UNREADABLE = (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError)
NUMBERS = re.compile(r'\[\n([^][{}"]+)\n *\]')  # a list of them in indented JSON; no string holds the end of a line


PREVIOUS = ".previous"  # behind the name of a file: the one that was there before


def part_of(path: Path) -> Path:
    """Where the next content of a file is written: no other process or thread writes there."""
    return path.with_name(f".{path.name}.{os.getpid()}-{get_native_id()}-{token_hex(4)}.part")


def remove_parts(folder: Path, *names: str) -> None:
    """Remove what killed processes left of files in the folder; each of ``names`` is a regular expression."""
    part = re.compile(rf"\.(?:{'|'.join(names)})\.\d+(?:-\d+-[0-9a-f]+)?\.part")
    for path in folder.iterdir():
        if part.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_names(folder: Path) -> None:
    """Write through to the disk which files a folder holds: only then does a new name survive a power loss."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, which survive a power loss as the files in them do."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        with suppress(PermissionError):  # to write somewhere one need not be allowed to read there
            sync_names(each.parent)


def write_atomically(path: Path, content: bytes, keep_previous: bool = False) -> None:
    """Replace a file as a whole: whoever reads it, even after a crash or power loss, finds the old or the new one.

    ``keep_previous`` leaves the old one beside it, as :data:`PREVIOUS`.
    """
    with written_atomically(path, keep_previous) as file:
        file.write(content)


@contextmanager
def written_atomically(path: Path, keep_previous: bool = False) -> Iterator[IO[bytes]]:
    """The same for content that is written part by part; an error within leaves the old file."""
    beside = part_of(path)
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.is_file():
            _link_previous(path)
        os.replace(beside, path)
        sync_names(path.parent)
    except (Exception, KeyboardInterrupt) as error:
        with suppress(OSError):  # a disk that fails may fail here, too
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SnclError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _link_previous(path: Path) -> None:
    """Give a file a second name, under which it stays when it is replaced; a copy where there are no links."""
    second = part_of(path)
    try:
        try:
            os.link(path, second)
        except OSError:
            copyfile(path, second)
        os.replace(second, path.with_name(path.name + PREVIOUS))
    finally:
        with suppress(OSError):
            second.unlink(missing_ok=True)  # still there if both names were of one file already


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, with a row of numbers on one line: the matrix of many tasks has a million."""
    text = json.dumps(value, indent=2, allow_nan=False)
    write_atomically(path, (NUMBERS.sub(_on_one_line, text) + "\n").encode())


def _on_one_line(numbers: re.Match[str]) -> str:
    return f"[{''.join(numbers[1].split())}]"


def read_json(path: Path) -> Any:
    try:
        return json.loads(file_content(path))
    except (OSError, ValueError, RecursionError) as error:
        raise SnclError(f"{path} is damaged or cannot be read ({error}); move it away to start over") from error


def content_checksum(value: Any) -> str:
    """CRC-32 over a value as JSON, however that is laid out in its file."""
    return f"{zlib.crc32(json.dumps(value, sort_keys=True, separators=(',', ':')).encode()):08x}"


def sealed(facts: dict[str, Any]) -> dict[str, Any]:
    """With a checksum."""
    return facts | {CHECKSUM: content_checksum(facts)}


def unsealed(facts: Any) -> Any:
    """The inverse of :func:`sealed`; a ValueError where something was changed in between. Files of early versions of
    0.2 have no checksum and are taken as they are."""
    if not isinstance(facts, dict) or CHECKSUM not in facts:
        return facts
    found = {key: value for key, value in facts.items() if key != CHECKSUM}
    if facts[CHECKSUM] != content_checksum(found):
        raise ValueError("it was changed after it was written, so that its checksum does not fit")
    return found


def check_seal(path: Path, facts: Any, otherwise: str) -> Any:
    """What a file holds, without its checksum; ``otherwise`` says what to do where it was changed."""
    try:
        return unsealed(facts)
    except (ValueError, RecursionError) as error:
        raise SnclError(f"{path} is damaged: {error}; {otherwise}") from error


def file_content(path: Path) -> bytes:
    """What a file holds; reading a pipe would wait for a writer."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file")
    return path.read_bytes()


def checkpoint_checksum(tensors: Fields, description: str) -> str:
    """CRC-32 over the description and every tensor with its name, type and shape."""
    import torch

    value = zlib.crc32(description.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def pack(tensors: Fields, description: dict[str, Any]) -> bytes:
    """Tensors and a JSON description as the content of one file."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    return save(plain, metadata={HEADER: text, CHECKSUM: checkpoint_checksum(plain, text)})


def unpack(content: bytes) -> tuple[Fields, dict[str, Any]]:
    """The inverse of :func:`pack`; an error of some kind if this is not what it made."""
    from safetensors.torch import load

    tensors = load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    if checkpoint_checksum(tensors, header[HEADER]) != header[CHECKSUM]:
        raise ValueError("its checksum does not fit")
    description = json.loads(header[HEADER])
    if not isinstance(description, dict):
        raise ValueError("it says nothing of its tensors")
    return tensors, description


def write_checkpoint(path: Path, tensors: Fields, description: dict[str, Any], keep_previous: bool = False) -> None:
    """Write tensors and a JSON description as one file."""
    write_atomically(path, pack(tensors, description), keep_previous)


def read_checkpoint(path: Path) -> tuple[Fields, dict[str, Any]]:
    """The tensors and the description of a checkpoint.

    Read in one go: ``safe_open`` opens the file twice, and may find an old header and new tensors beside a writer.
    """
    try:
        return unpack(file_content(path))
    except FileNotFoundError as error:
        raise SnclError(f"there is no checkpoint {path}") from error
    except UNREADABLE as error:
        raise SnclError(f"{path} is no sncl checkpoint, or damaged ({error}); move it away to start over") from error


def read_saved(path: Path) -> tuple[Fields, dict[str, Any]]:
    """The same for a file that was written with ``keep_previous``: an error says where the one before it is."""
    try:
        return read_checkpoint(path)
    except SnclError as error:
        previous = path.with_name(path.name + PREVIOUS)
        if not previous.exists():
            raise
        raise SnclError(f"{error}; what was saved before it is in {previous}") from error
