"""Compiled code is kept where nobody but its user can change it, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sncl.training import code_cache
from sncl.training.code_cache import CHOSEN, is_private, keep_code, made_by


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache; no folder is chosen yet."""
    monkeypatch.setenv(CHOSEN, "")  # so that what is set during the test is undone
    monkeypatch.delenv(CHOSEN)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(code_cache, "user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "sncl"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_code_is_kept_in_a_folder_that_is_closed_to_others(cache: Path, umask: int) -> None:
    (cache.parent).mkdir(mode=0o755)
    before = os.umask(umask)
    try:
        keep_code()
    finally:
        os.umask(before)
    folder = Path(os.environ[CHOSEN])
    assert folder == (cache / "compiled" / made_by()).resolve()
    assert (mode(folder), mode(folder.parent), mode(cache)) == (0o700, 0o700, 0o755)
    os.environ.pop(CHOSEN)
    keep_code()  # the next process finds it
    assert Path(os.environ[CHOSEN]) == folder


def test_a_folder_that_was_chosen_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOSEN, "elsewhere")
    keep_code()
    assert os.environ[CHOSEN] == "elsewhere" and not cache.exists()


def test_the_folder_that_pytorch_names_by_itself_was_not_chosen(cache: Path) -> None:
    cache.parent.mkdir(mode=0o755)
    named = "import os, torch, torch._inductor; print(os.environ[__import__('sys').argv[1]])"
    done = subprocess.run([sys.executable, "-c", named, CHOSEN], capture_output=True, text=True, check=True)
    os.environ[CHOSEN] = done.stdout.strip()
    keep_code()
    assert Path(os.environ[CHOSEN]) == (cache / "compiled" / made_by()).resolve()


@pytest.mark.parametrize("case", ["readable", "writable", "above", "link", "no folder"])
def test_what_others_can_change_is_not_used(cache: Path, tmp_path: Path, case: str) -> None:
    folder = cache / "compiled" / made_by()
    folder.parent.mkdir(parents=True)
    for each in (cache.parent, cache):
        each.chmod(0o755)
    if case == "link":
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs").chmod(0o777)
        folder.symlink_to(tmp_path / "theirs")
    elif case == "no folder":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod({"readable": 0o755, "writable": 0o770, "above": 0o700}[case])
        cache.chmod(0o775 if case == "above" else 0o755)
    with pytest.warns(UserWarning, match=rf"not kept for the next process, since .*{CHOSEN}"):
        keep_code()
    used = Path(os.environ[CHOSEN])
    assert used.is_dir() and is_private(used) and cache not in used.parents and tmp_path / "theirs" != used.resolve()
    used.rmdir()


def test_a_folder_of_somebody_else_is_not_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    assert is_private(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert not is_private(tmp_path)


def test_the_name_of_the_folder_says_what_made_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = made_by()
    assert torch.__version__ in ours and f"{sys.version_info.major}.{sys.version_info.minor}" in ours
    assert "/" not in ours and " " not in ours
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert made_by() != ours


def test_a_temporary_folder_goes_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, warnings; warnings.simplefilter('ignore')\n"
        "from sncl.training import code_cache as c\n"
        f"c.user_cache_path = lambda name: c.Path({str(tmp_path / 'file')!r}) / name\n"
        "c.keep_code(); print(os.environ[c.CHOSEN], os.path.isdir(os.environ[c.CHOSEN]))"
    )
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != CHOSEN}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    folder, was_there = done.stdout.split()
    assert was_there == "True" and not Path(folder).exists()
