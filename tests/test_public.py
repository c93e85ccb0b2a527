"""The front door: what ``dir(sncl)`` offers is there, is documented, and is all there is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import sncl


def test_everything_public_is_offered_for_completion() -> None:
    """In a program that has used nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", "import sncl; print(*dir(sncl))"], capture_output=True, text=True, check=True
    )
    offered = set(done.stdout.split())
    assert set(sncl.__all__) | {"__version__"} <= offered
    assert {"run", "results", "Learner", "stream", "ContinualClassifier"} <= offered


def test_all_is_true() -> None:
    assert sncl.__all__ == sorted(sncl.__all__) and set(sncl.__all__) == set(sncl._PUBLIC)
    for name in sncl.__all__:
        assert getattr(sncl, name) is not None, name
    with pytest.raises(AttributeError, match="module 'sncl' has no attribute 'lerner'"):
        sncl.lerner  # noqa: B018


@pytest.mark.parametrize("name", sncl.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(sncl, name)
    assert len(vars(found).get("__doc__", "") if inspect.isclass(found) else found.__doc__ or "") > 20


def test_completion_is_not_littered() -> None:
    """What is loaded besides public names is a part of the package or needed by Python itself."""
    others = [name for name in dir(sncl) if name not in sncl.__all__ and not re.fullmatch("_.*", name)]
    assert [name for name in others if not inspect.ismodule(getattr(sncl, name))] == []
