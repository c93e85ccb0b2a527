"""Small finished runs, and ways to damage them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import sealed, unsealed


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ER and SNCL on three tasks with two seeds, and a stream without boundaries."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("er", "sncl"):
        for seed in (0, 1):
            experiment = plan("seq-digits", method, memory=30, seed=seed, tasks=3, epochs=1, device="cpu")
            perform(experiment, folder / f"{method}-{seed}")
    perform(plan("digits-360", "sncl", memory=30, device="cpu", settings={"batch_size": "64"}), folder / "turning")
    return folder


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of one run with other values in its files; a key may lead inwards with dots."""

    def copy(name: str, to: str, **changes: dict[str, Any]) -> Path:
        folder = tmp_path / "copies" / to
        shutil.copytree(runs / name, folder)
        for file, values in changes.items():
            path = folder / f"{file}.json"
            content = unsealed(json.loads(path.read_text()))
            for key, value in values.items():
                *way, last = key.split(".")
                inner = content
                for step in way:
                    inner = inner[step]
                inner[last] = value
            path.write_text(json.dumps(sealed(content)))
        return folder

    return copy
