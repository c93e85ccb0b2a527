"""Text files of fields with a separator between them: which bytes, which separator, and whether names come first."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections import Counter
from pathlib import Path

from sncl.errors import SnclError
from sncl.tables.cells import MISSING_VALUES, SMALLER, typed_cells
from sncl.tables.columns import Columns, is_number, some
from sncl.tensors.room import require_memory

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
BYTES_A_BYTE = 5  # of a CSV file, at least: its cells as Python strings
UNPACKED_AT_ONCE = 2**22  # bytes
ROWS_COMPARED = 1000  # rows, to tell names from data
BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
CONTROL = frozenset(range(32)) - {9, 10, 12, 13, 26}  # no text has these
CONSECUTIVE = 3  # whole numbers in a row are names, as pandas gives them


def read_separated(path: Path) -> tuple[Columns, list[str]]:
    """The columns of a text file, and what was noticed."""
    text, notes = decoded(_bytes_of(path), path)
    head = text.partition("\n")[0]
    separator = max(SEPARATORS, key=head.count)
    if separator == "|":
        notes.append(f"fields are separated by {SEPARATORS[separator]}")
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if line]
    except csv.Error as error:
        raise SnclError(f"{path} cannot be read as CSV ({error})") from error
    del text
    names, lines, header_note = _with_names(path, lines)
    notes += header_note
    for number, line in enumerate(lines, start=1):
        if len(line) != len(names):
            raise SnclError(f"{path}: row {number} has {len(line)} fields instead of {len(names)}")
    found, commas, thousands = {}, [], []
    for name, column in zip(names, zip(*lines, strict=True), strict=True):
        cells = typed_cells(path, name, column, separator)
        found[name] = cells.column
        commas += [name] if cells.style == "comma" else []
        thousands += [name] if cells.style == "thousands" else []
    if commas:
        notes.append(f"decimal commas in {some(commas)}")
    if thousands:
        notes.append(f"separators of thousands in {some(thousands)}")
    return found, notes


def _bytes_of(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzipped; never more than there is room for."""
    require_memory(path.stat().st_size * BYTES_A_BYTE, f"reading {path}", SMALLER)
    try:
        if path.suffix.lower() != ".gz":
            return path.read_bytes()
        content = bytearray()
        with gzip.open(path) as file:
            while chunk := file.read(UNPACKED_AT_ONCE):
                content += chunk
                require_memory(len(content) * BYTES_A_BYTE, f"reading {path}", SMALLER)
        return bytes(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SnclError(f"{path} cannot be read as CSV ({error})") from error


def decoded(content: bytes, path: Path) -> tuple[str, list[str]]:
    """Bytes as text: UTF-8, UTF-16 with its mark, else the Western European one of Windows."""
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if content.startswith(mark)), None)
    try:
        text = content.decode(encoding or "utf-8")
        return text, ["the file is UTF-16"] if encoding == "utf-16" else []
    except UnicodeDecodeError as error:
        if encoding is not None or not CONTROL.isdisjoint(content):
            raise SnclError(f"{path} cannot be read as CSV ({error}); save it as UTF-8") from error
    try:
        text, name = content.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        text, name = content.decode("latin-1"), "Latin-1"
    return text, [f"the file is no UTF-8, and is read as {name}"]


def _with_names(path: Path, lines: list[list[str]]) -> tuple[list[str], list[list[str]], list[str]]:
    """The names of the columns, the rows below them, and what was noticed."""
    if len(lines) < 2:
        raise SnclError(f"{path} has no rows below a line with the names of the columns")
    first = [cell.strip() for cell in lines[0]]
    if is_data(first, lines[1 : 1 + ROWS_COMPARED]):
        names = [f"x{number}" for number in range(1, len(first) + 1)]
        return names, lines, [f"the first line holds data, so columns are called x1 to x{len(first)}"]
    notes = []
    if len(first) > 1 and first[0] == "" and "index" not in first:  # as pandas writes the index of a table
        first[0] = "index"
        notes.append("the first column has no name and is called 'index'")
    refuse_unclear(path, first)
    return first, lines[1:], notes


def is_data(first: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line is a row like the others.

    It is if numbers stand above all columns of numbers; or, without such columns, if every cell occurs again below it.
    Whole numbers one after the other are names.
    """
    columns = [[line[place].strip() for line in rows if place < len(line)] for place in range(len(first))]
    present = [[cell for cell in column if cell.lower() not in MISSING_VALUES] for column in columns]
    numeric = [place for place, column in enumerate(present) if column and all(map(_like_number, column))]
    if not numeric:
        return all(cell in set(column) for cell, column in zip(first, columns, strict=True))
    heads = [first[place] for place in numeric if first[place].lower() not in MISSING_VALUES]
    return bool(heads) and all(map(_like_number, heads)) and not _numbered(heads)


def _like_number(cell: str) -> bool:
    return is_number(cell) or is_number(cell.replace(".", "").replace(",", "."))


def _numbered(heads: list[str]) -> bool:
    if len(heads) < CONSECUTIVE or not all(head.isascii() and head.isdecimal() for head in heads):
        return False
    begin = int(heads[0])
    return [int(head) for head in heads] == list(range(begin, begin + len(heads)))


def refuse_unclear(path: Path, names: list[str]) -> None:
    """Refuse columns of the same name, or of none."""
    counts = Counter(names)
    unclear = [name or "a column without a name" for name in names if counts[name] > 1 or not name]
    if unclear:
        raise SnclError(f"{path}: the first line names every column once, but not {unclear[0]}")
