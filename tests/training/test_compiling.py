"""Variants of a step are compiled once, beside the runs that are under way, and kept for the next process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from sncl.training.code_cache import CHOSEN
from sncl.training.compiling import Variants

WAIT = 60.0  # for what happens at once, unless it never does

COMPILES = """
import json, torch
from dataclasses import replace
from sncl import Learner
from sncl.training.compiling import compiled_observe
from torch._dynamo.utils import counters

learner = Learner(torch.nn.Linear(4, 3), "derpp", memory=6, replay=6, seed=SEED, device="cpu")
batches = [(torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(2)]
learner.learn(*batches[0])
learner.ready.engine.step = replace(learner.ready.engine.step, observe=compiled_observe())
learner.learn(*batches[1])
found = counters["aot_autograd"]
print(json.dumps([found["autograd_cache_miss"], found["autograd_cache_hit"], found["autograd_cache_bypass"]]))
"""


def never() -> None:
    raise AssertionError("compiled elsewhere")


def test_the_first_variant_of_a_process_is_compiled_in_it() -> None:
    variants = Variants()
    with variants.taking_part("one", never), variants.taking_part("one", never):
        pass
    with variants.taking_part("another", never):  # nobody else is there any more
        pass


def test_a_new_variant_beside_others_is_compiled_elsewhere_once() -> None:
    variants, compiled = Variants(), []
    with variants.taking_part("one", never):
        for _ in range(2):
            with variants.taking_part("another", lambda: compiled.append("another")):
                pass
        with variants.taking_part("one", never):
            pass
        with variants.taking_part("third", lambda: compiled.append("third")):
            pass
    assert compiled == ["another", "third"]


def test_only_those_who_need_a_variant_wait_for_it() -> None:
    variants, begun, may_end = Variants(), Event(), Event()
    entered: list[str] = []

    def compile_slowly() -> None:
        begun.set()
        assert may_end.wait(WAIT)
        entered.append("compiled")

    def run(name: str) -> None:
        with variants.taking_part(name, compile_slowly if name == "slow" else lambda: None):
            entered.append(name)

    with variants.taking_part("one", never):
        first, second = (Thread(target=run, args=("slow",)) for _ in range(2))
        first.start()
        assert begun.wait(WAIT)
        second.start()
        run("one")
        run("another")  # is compiled side by side with it
        assert entered == ["one", "another"]
        may_end.set()
        for each in (first, second):
            each.join(WAIT)
    assert entered == ["one", "another", "compiled", "slow", "slow"]


def test_a_compilation_that_breaks_off_holds_nobody_up() -> None:
    variants = Variants()

    def stopped() -> None:
        raise KeyboardInterrupt

    with variants.taking_part("one", never):
        with pytest.raises(KeyboardInterrupt), variants.taking_part("another", stopped):
            raise AssertionError("went on")
        with variants.taking_part("another", never):
            pass
    with variants.taking_part("third", never):  # nobody counts as running
        pass


@pytest.mark.slow
def test_what_one_process_compiled_the_next_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For another seed, too; on the CPU, whose code is kept in the same way."""
    monkeypatch.setenv(CHOSEN, str(tmp_path))
    found = []
    for seed in range(2):
        program = COMPILES.replace("SEED", str(seed))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found == [[1, 0, 0], [0, 1, 0]]
