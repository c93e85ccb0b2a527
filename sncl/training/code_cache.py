"""Where the compiler keeps the code it makes: in a folder of this user, so that the next process need not compile.

What PyTorch's compiler keeps are pickles: whoever can write to them runs code here. Its own choice is a folder with a
known name where everybody may write, which is empty after a restart. Ours lies in the user's cache and is closed to
others. It has the versions of what made the code, and of what runs it, in its name.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import stat
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock

import torch
from platformdirs import user_cache_path

CHOSEN = "TORCHINDUCTOR_CACHE_DIR"  # what the compiler is told by; Triton's kernels lie below it
DEFAULT = "torchinductor_"  # and the user's name, below the temporary folder: PyTorch's own choice
CHOOSING = Lock()
OTHERS_MAY = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def keep_code() -> None:
    """Have compiled code kept in a folder of this user, unless somebody has chosen one already.

    Where there is none that nobody else can write to, one is made for this process.
    """
    with CHOOSING:
        if not is_chosen(os.environ.get(CHOSEN)):
            os.environ[CHOSEN] = str(_own_folder())


def is_chosen(folder: str | None) -> bool:
    """Whether a folder was chosen by somebody: PyTorch names its own choice there as soon as parts of it are loaded."""
    if not folder:
        return False
    return not (Path(folder).name.startswith(DEFAULT) and Path(folder).parent == Path(tempfile.gettempdir()).absolute())


def _own_folder() -> Path:
    folder = user_cache_path("sncl") / "compiled" / made_by()
    try:
        found = private_folder(folder)
    except OSError as error:
        found, why = None, error.strerror or str(error)
    else:
        why = "others may change it, or a folder above it"
    if found is None:
        found = Path(tempfile.mkdtemp(prefix="sncl-compiled-"))
        atexit.register(shutil.rmtree, found, ignore_errors=True)
        warnings.warn(
            f"compiled code is not kept for the next process, since {folder} cannot be used: {why}; set {CHOSEN} to a "
            "folder of your own",
            stacklevel=3,
        )
    return found


def made_by() -> str:
    """What compiled code depends on besides what is compiled: versions, and the kind of GPU."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    gpu = "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else "none"
    parts = f"torch-{torch.__version__} triton-{triton} cuda-{torch.version.cuda} gpu-{gpu}"
    return re.sub(r"[^\w.+-]+", "_", f"{parts} python-{platform.python_version()} {platform.machine()}")


def private_folder(folder: Path) -> Path | None:
    """The folder, made if need be, where nobody but this user may look or write; None where others can change it."""
    folder.parents[2].mkdir(parents=True, exist_ok=True)
    folder.parents[1].mkdir(mode=0o755, exist_ok=True)  # data sets lie there, too
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    real = folder.resolve()
    return real if is_private(real) else None


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's and closed to all others, and none of those above it can be exchanged by them."""
    if not hasattr(os, "getuid"):  # folders of a user are private there
        return True
    found, user = folder.lstat(), os.getuid()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & OTHERS_MAY:
        return False
    above = [each.stat() for each in folder.parents]
    return all(
        each.st_uid in (0, user) and (not each.st_mode & OTHERS_WRITE or each.st_mode & stat.S_ISVTX) for each in above
    )
