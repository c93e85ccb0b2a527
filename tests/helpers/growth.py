"""How much something costs when there is more of it, in numbers that are the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import sncl

PACKAGE = str(Path(sncl.__file__).parent)


def work(function: Callable[[], Any]) -> int:
    """How many instructions of sncl's own Python code a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def assert_linear(costs: Mapping[int, float], slack: float = 1.3) -> None:
    """Whoever has more pays no more for each: ten times the size costs at most ``slack`` times ten times as much."""
    sizes = sorted(costs)
    assert len(sizes) > 1 and all(costs.values())
    for few, many in pairwise(sizes):
        assert costs[many] <= slack * costs[few] * many / few, f"{costs}: from {few} to {many} it grows faster"
