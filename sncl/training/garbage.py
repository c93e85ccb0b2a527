"""The collector of garbage while a program is loaded: torch is 280,000 objects that stay, and none of them is garbage.

Looking through all of them again and again while there are ever more, and once more when the process ends, was a third
of what a short command costs.
"""

from __future__ import annotations

import gc
import sys

from sncl.training.stopping import is_loading

NEW_OBJECTS = 50_000  # between two looks, until the first one that comes while no module is loaded


def load_lightly() -> None:
    """Let all that is there while modules are loaded stay for good; what comes later is looked through as usual."""
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
        if is_loading(sys._getframe()):
            gc.freeze()
        else:
            gc.set_threshold(*self.usual)
            gc.callbacks.remove(self)
