"""Variants of a step are compiled once, beside the runs that are under way, and kept for the next process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from sncl.methods.method import Method
from sncl.methods.table import METHODS, Settings, make
from sncl.networks.mlp import MLP
from sncl.tensors.random import Randomness, seeded
from sncl.training import assembly
from sncl.training.code_cache import CHOSEN
from sncl.training.compiling import Variants, compiled_observe
from sncl.training.engine import Eager
from sncl.training.learner import Learner
from sncl.training.step import Step

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


COMPILED = [name for name in METHODS if make(name).capturable and make(name).one_backward]


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
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # no programs that try out what this processor can do
    found = []
    for seed in range(2):
        program = COMPILES.replace("SEED", str(seed))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found == [[1, 0, 0], [0, 1, 0]]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Steps are traced in one piece and guarded as ever, but run as they were traced: making code takes long."""
    monkeypatch.setenv(CHOSEN, str(tmp_path))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=True):  # as it comes, whatever ran here before
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
        yield
    torch._dynamo.reset()


def doubled(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return 2 * output


def losses(method: Method, *, hook: bool = False, compiled: bool = False) -> list[float]:
    """Those of some steps."""

    def engine(name: str, step: Step, random: Randomness, device: torch.device) -> Eager:
        return Eager(replace(step, observe=compiled_observe()) if compiled else step, random, device)

    with seeded(0, "network"):
        net = MLP(8, 3, 6)
    if hook:
        net.layer1.register_forward_hook(doubled)
    with mock.patch.object(assembly, "make_engine", engine):
        learner = Learner(net, method, memory=6, replay=6, device="cpu")
        batches = [torch.linspace(0, number + 1, 48).view(6, 8) for number in range(3)]
        return [float(value) for x in batches for value in learner.learn(x, torch.arange(6) % 3).values()]


@pytest.mark.usefixtures("traced")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # what the compiler does itself
def test_compiled_steps_are_those_of_their_own_method_and_network_whatever_was_compiled_before() -> None:
    variants: dict[str, Settings] = {
        "without gates": {"gates": "off"},
        "gates that grow": {"gates": "grow", "sparsity": 0.5},
        "gates with noise": {"gates": "kl", "eta": 0.01},
        "features of one layer": {"gates": "off", "features": "layer1"},
        "no features": {"gates": "off", "gamma": 0.0},
    }
    for settings in [*variants.values(), {}]:
        for hook in (False, True):
            ours, expected = (losses(make("sncl", settings), hook=hook, compiled=each) for each in (True, False))
            assert ours == pytest.approx(expected, abs=1e-5), (settings, hook)


@pytest.mark.usefixtures("traced")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_every_method_is_compiled_in_one_piece(name: str) -> None:
    assert losses(make(name), compiled=True) == pytest.approx(losses(make(name)), abs=1e-5)
