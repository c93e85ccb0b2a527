"""Shared fixtures: one thread per test process, and the folder of real data where there is one."""

import os
import sys
from pathlib import Path

import hypothesis
import pytest
import torch
from command_line import Done, Sncl

from sncl import cli

# The same examples on every machine, and no deadline: the first call into torch is slow.
hypothesis.settings.register_profile("sncl", deadline=None, derandomize=True)
hypothesis.settings.load_profile("sncl")


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
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, *capfd.readouterr())

    return run
