"""Finished runs of a few seconds over the embedded digits, made once for all tests here."""

from pathlib import Path

import pytest

from sncl.analysis.loading import Trained, load_run
from sncl.experiment import perform, plan


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders METHOD-SEED of short runs on seq-digits; SNCL averages weights and keeps each task's network."""
    folder = tmp_path_factory.mktemp("runs")
    for method, seed in (("er", 0), ("er", 1), ("sncl", 0), ("icarl", 0)):
        average = {"average": "0.8"} if method == "sncl" else {}
        experiment = plan("seq-digits", method, memory=30, tasks=3, epochs=1, seed=seed, device="cpu", settings=average)
        perform(experiment, folder / f"{method}-{seed}", keep_tasks=method == "sncl")
    return folder


@pytest.fixture
def plain(runs: Path) -> Trained:
    return load_run(runs / "er-0", device="cpu")


@pytest.fixture
def gated(runs: Path) -> Trained:
    return load_run(runs / "sncl-0", device="cpu")
