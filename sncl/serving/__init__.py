"""A model in use: an HTTP server that predicts while it learns, and keeps what was acknowledged.

>>> from sncl.serving import serve
>>> serve(learner, snapshot="learner.safetensors")
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sncl.errors import lacking

if TYPE_CHECKING:
    from sncl.serving.app import make_app
    from sncl.serving.server import serve

__all__ = ["make_app", "serve"]

_PUBLIC = {"make_app": "sncl.serving.app", "serve": "sncl.serving.server"}


def __getattr__(name: str) -> Any:
    """Loaded at first use: fastapi and uvicorn are an extra."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sncl.serving' has no attribute {name!r}")
    if missing := [each for each in ("fastapi", "uvicorn") if find_spec(each) is None]:
        raise lacking("serving", *missing)
    return getattr(import_module(_PUBLIC[name]), name)
