"""What torch is made of stays, and is not looked through; afterwards garbage is collected as before."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import ModuleType

from sncl.training.garbage import NEW_OBJECTS, load_lightly

AROUND_IT = """
import gc
from sncl.training.garbage import load_lightly
usual = gc.get_threshold()
load_lightly()
import torch
kept = gc.get_freeze_count()
import sklearn
gc.collect()
assert gc.get_freeze_count() <= kept and gc.get_threshold() == usual and not gc.callbacks
print(kept, len(gc.get_objects()))
"""


def test_what_is_there_while_torch_is_loaded_stays() -> None:
    gc.collect()
    usual, told, kept = gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()
    load_lightly()
    load_lightly()
    assert len(gc.callbacks) == told + 1
    assert gc.get_threshold() == (NEW_OBJECTS, *usual[1:])
    code = "import gc\nhere = [[] for _ in range(1000)]\ngc.collect()\n"
    exec(compile(code, "<loaded>", "exec"), vars(loaded := ModuleType("torch")))
    assert gc.get_freeze_count() > kept + 1000
    assert gc.get_threshold()[0] == NEW_OBJECTS
    exec(compile(code, "<loaded>", "exec"), vars(loaded := ModuleType("other")))  # torch is there: it is over
    assert len(loaded.here) == 1000
    assert (gc.get_threshold(), len(gc.callbacks)) == (usual, told)
    kept = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= kept


def test_of_what_a_process_loads_behind_torch_nothing_stays_for_good() -> None:
    done = subprocess.run([sys.executable, "-c", AROUND_IT], capture_output=True, text=True, check=True)
    kept, rest = map(int, done.stdout.split())
    assert kept > rest
