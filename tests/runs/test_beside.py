"""What another process compiles for a run is what the run needs, and nothing depends on whether it could."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sncl.methods.method import Outcome
from sncl.methods.table import METHODS, make
from sncl.runs import beside
from sncl.runs.beside import FirstSteps, Samples, beside_others, compile_elsewhere, make_steps, variant_of
from sncl.runs.build import make_stream
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.streams.stream import Stream
from sncl.training import assembly
from sncl.training.code_cache import CHOSEN
from sncl.training.engine import Eager, shapes
from sncl.training.step import StepInput

CAPTURED = [name for name in METHODS if make(name).capturable and not METHODS[name].joint]
ON_A_GPU: Any = SimpleNamespace(engine="graph")


def experiment(method: str = "er", **options: Any) -> Experiment:
    chosen: dict[str, Any] = {"memory": 40, "tasks": 2, "epochs": 1, "settings": {"replay": "20"}}
    return plan("seq-digits", method, device="cpu", **chosen | options)


def samples_of(stream: Stream) -> Samples:
    rows = len(stream.positions(0, 0)[0])
    return Samples(stream.shape, stream.classes, stream.transform, stream.x.dtype, rows, stream.boundaries)


@contextmanager
def usual_forms(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Hashable]]:
    """The forms of the steps that a GPU would capture: as many samples as in the first batch, with replay settled."""
    found: set[Hashable] = set()

    class Noting(Eager):
        def __call__(self, given: StepInput, usual: bool) -> Outcome:
            found.update([(shapes(given), len(given.draws))] if usual else [])
            return super().__call__(given, usual)

    with monkeypatch.context() as patch:
        patch.setattr(assembly, "make_engine", lambda name, *parts: Noting(*parts))
        yield found


@pytest.mark.parametrize("method", CAPTURED)
def test_the_forms_that_are_compiled_are_those_of_the_run(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = experiment(method, memory=None if METHODS[method].memory is False else 40)
    with usual_forms(monkeypatch) as needed:
        perform(wanted, tmp_path / "run")
    with usual_forms(monkeypatch) as compiled:
        make_steps(FirstSteps(wanted, samples_of(make_stream(wanted, None))))
    assert needed and needed <= compiled


def test_runs_of_one_variant_differ_in_nothing_that_is_compiled() -> None:
    ours = experiment("sncl")
    same = [replace(ours, seed=1), replace(ours, tasks=3, epochs=2, memory=90), experiment("sncl", validation=0.1)]
    same += [experiment("sncl", settings={"replay": "20", "lr": "0.5"})]
    trained = {"replay": "20", "momentum": "0.9", "weight_decay": "0.001", "lr_drop": "0.1", "lr_drop_part": "0.2"}
    same.append(experiment("sncl", settings=trained))  # compiled are the passes, not what the optimiser does
    assert {variant_of(each) for each in same} == {variant_of(ours)}
    others = [
        experiment("er"),
        experiment("sncl", settings={"replay": "20", "alpha": "0.7"}),
        experiment("sncl", settings={}),
    ]
    others += [replace(ours, precision="bfloat16"), replace(ours, engine="graph")]
    assert len({variant_of(each) for each in (ours, *others)}) == 6


def test_a_run_unlike_those_beside_it_is_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[FirstSteps] = []
    monkeypatch.setattr(beside, "compile_elsewhere", orders.append)
    monkeypatch.setattr(beside, "VARIANTS", type(beside.VARIANTS)())
    one, other = experiment("er"), experiment("derpp")
    stream = make_stream(one, None)
    with beside_others(one, stream, ON_A_GPU), beside_others(replace(one, seed=1), stream, ON_A_GPU):
        assert not orders
        with beside_others(replace(other), stream, SimpleNamespace(engine="eager")):  # type: ignore[arg-type]
            assert not orders
        with beside_others(other, stream, ON_A_GPU):
            assert orders == [FirstSteps(other, samples_of(stream))]


def test_another_process_makes_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    run_all = beside.run_all
    monkeypatch.setattr(beside, "run_all", lambda *args, **options: made.append(run_all(*args, **options)))
    wanted = experiment()
    order = FirstSteps(wanted, samples_of(make_stream(wanted, None)))
    compile_elsewhere(order)
    assert made == [[None]]
    compile_elsewhere(
        order._replace(experiment=replace(wanted, method="nothing"))
    )  # fails there, and is no matter here
    assert made == [[None]]


def test_a_run_that_is_told_to_stop_waits_for_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(beside, "stop_if_asked", stop)
    wanted = experiment()
    with pytest.raises(KeyboardInterrupt):
        compile_elsewhere(FirstSteps(wanted, samples_of(make_stream(wanted, None))))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_run_on_a_gpu_finds_what_another_process_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.utils import counters

    monkeypatch.setenv(CHOSEN, str(tmp_path / "code"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    torch._dynamo.reset()
    wanted = plan("seq-digits", "sncl", memory=40, tasks=2, epochs=1, device="cuda", engine="graph")
    compile_elsewhere(FirstSteps(wanted, samples_of(make_stream(wanted, None))))
    counters.clear()
    perform(replace(wanted, seed=1), tmp_path / "run")
    assert counters["aot_autograd"]["autograd_cache_hit"] > 0
    assert not counters["aot_autograd"]["autograd_cache_miss"]
