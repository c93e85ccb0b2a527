"""What is loaded stays, and is not looked through; afterwards garbage is collected as before."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sncl.training.garbage import NEW_OBJECTS, load_lightly


def test_what_is_there_while_a_module_is_loaded_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_lightly.py").write_text("import gc\nhere = [[] for _ in range(1000)]\ngc.collect()\n")
    gc.collect()
    usual, told, kept = gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()
    load_lightly()
    load_lightly()
    assert len(gc.callbacks) == told + 1
    assert gc.get_threshold() == (NEW_OBJECTS, *usual[1:])
    import_module("loaded_lightly")
    assert gc.get_freeze_count() > kept + 1000
    assert gc.get_threshold()[0] == NEW_OBJECTS
    del sys.modules["loaded_lightly"]
    gc.collect()
    assert (gc.get_threshold(), len(gc.callbacks)) == (usual, told)
    kept = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= kept
