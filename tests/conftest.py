"""Shared fixtures: one thread per test process, the folder of real data where there is one, and a few finished runs."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from command_line import Done, Sncl

from sncl import cli
from sncl.runs.loading import Trained, load_run
from sncl.runs.perform import perform
from sncl.runs.plan import plan

# The same examples on every machine, and no deadline: the first call into torch is slow.
hypothesis.settings.register_profile("sncl", deadline=None, derandomize=True)
hypothesis.settings.load_profile("sncl")


gc.disable()  # while torch and the tests are loaded: nothing of them is garbage


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def looked_through_once() -> Iterator[None]:
    """What a module leaves behind (a compiler, an exporter) is searched for garbage once, not in every later test."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Keep sums in one order, and xdist's workers out of each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder that SNCL_DATA names; without the variable the test is skipped, with a wrong one it fails."""
    value = os.environ.get("SNCL_DATA")
    if not value:
        pytest.skip("set SNCL_DATA to a folder of datasets")
    folder = Path(value)
    assert folder.is_dir(), f"SNCL_DATA is not a folder: {folder}"
    return folder


@pytest.fixture
def sncl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Sncl:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Done:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["sncl", *map(str, arguments)])
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        with pytest.raises(SystemExit) as ended:
            cli.main()
        for each, handler in before.items():  # a program would end here
            signal.signal(each, handler)
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders METHOD-SEED of short runs on seq-digits; SNCL averages weights and keeps each task's network."""
    folder = tmp_path_factory.mktemp("runs")
    for method, seed in (("er", 0), ("er", 1), ("sncl", 0), ("icarl", 0)):
        average = {"ema": "0.8"} if method == "sncl" else {}
        experiment = plan("seq-digits", method, memory=30, tasks=3, epochs=1, seed=seed, device="cpu", settings=average)
        perform(experiment, folder / f"{method}-{seed}", keep_tasks=method == "sncl")
    return folder


@pytest.fixture
def plain(runs: Path) -> Trained:
    return load_run(runs / "er-0", device="cpu")


@pytest.fixture
def gated(runs: Path) -> Trained:
    return load_run(runs / "sncl-0", device="cpu")


@pytest.fixture(scope="session")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run like ``sncl-0`` with the paper's gates, which are random."""
    folder = tmp_path_factory.mktemp("random")
    settings = {"gates": "kl", "ema": "0.8"}
    perform(plan("seq-digits", "sncl", memory=30, tasks=3, epochs=1, device="cpu", settings=settings), folder)
    return folder


@pytest.fixture
def random_gates(random_run: Path) -> Trained:
    return load_run(random_run, device="cpu")
