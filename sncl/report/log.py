"""The log a run wrote on the way, line by line, checked as it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sncl.errors import SnclError
from sncl.training.checkpoint import file_content

MOST_SAMPLES = 2**40  # in a memory

LogLine = dict[str, Any]


def read_log(path: Path) -> Iterator[LogLine]:
    """The lines of a log; none where there is no log."""
    if not path.exists():
        return
    try:
        lines = file_content(path).decode().split("\n")
    except (OSError, ValueError) as error:
        raise SnclError(f"{path} cannot be read ({error})") from error
    for number, text in enumerate(lines, 1):
        if number == len(lines) and not text:  # behind the last line
            return
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SnclError(f"line {number} of {path} is damaged ({error})") from error
        try:
            is_valid = is_log_line(line)
        except (AttributeError, KeyError, TypeError, OverflowError):
            is_valid = False
        if not is_valid:
            raise SnclError(f"line {number} of {path} is damaged: it is no entry of a log")
        yield line


def is_log_line(line: Any) -> bool:
    """Whether a line has the form that a run writes; older runs left out some of it."""
    if not isinstance(line, dict) or not is_finite(line.get("step")):
        return False
    use = line.get("neuron_use", {"used": {}, "any": {}, "overlap": []})
    return (
        all(is_finite(value) for value in line.get("losses", {}).values())
        and isinstance(line.get("memory", 0), int)
        and 0 <= line.get("memory", 0) <= MOST_SAMPLES
        and all(are_numbers(line[key]) for key in ("memory_by_class", "memory_by_task") if key in line)
        and all(are_numbers(pair) and len(pair) == 2 for pair in line.get("open_neurons", {}).values())
        and all(are_numbers(part) for part in (*use["used"].values(), list(use["any"].values()), *use["overlap"]))
    )


def are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(value is None or is_finite(value) for value in values)


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
