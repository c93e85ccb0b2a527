"""Whether there may be a GPU, found out without torch, which takes long to load."""

from __future__ import annotations

import ctypes
import sys
from importlib.metadata import PackageNotFoundError, version

DRIVER = "libcuda.so.1"


def may_have_gpu() -> bool:
    """Whether torch might find a GPU here. False is certain: torch was built without, or there is no driver."""
    try:
        built = version("torch").partition("+")[2]
    except PackageNotFoundError:
        return True
    if built == "cpu" or sys.platform == "darwin":
        return False
    if built.startswith("rocm") or sys.platform != "linux":
        return True
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True
