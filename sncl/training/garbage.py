"""The collector of garbage while torch is loaded: 250,000 objects that stay, and none of them is garbage.

Looking through all of them again and again while there are ever more, and once more when the process ends, was a third
of what a short command costs.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

NEW_OBJECTS = 20_000  # between two looks, until the first one that comes when torch is there


def load_lightly() -> None:
    """Let all that is there while torch is loaded stay for good; what comes later is looked through as usual.

    For programs that have made nothing yet: of theirs, nothing would be collected either.
    """
    if not any(isinstance(each, _Loading) for each in gc.callbacks):
        gc.callbacks.append(_Loading())


class _Loading:
    """Told by the collector before it looks for garbage, and behind that."""

    def __init__(self) -> None:
        self.usual = gc.get_threshold()
        gc.set_threshold(NEW_OBJECTS, *self.usual[1:])

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase != "start":
            return
        if _loads_torch(sys._getframe()):
            gc.freeze()
        elif "torch" in sys.modules:
            gc.set_threshold(*self.usual)
            gc.callbacks.remove(self)


def _loads_torch(frame: FrameType | None) -> bool:
    """Whether the module itself, which loads all others, is being run."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch":
            return True
        frame = frame.f_back
    return False
