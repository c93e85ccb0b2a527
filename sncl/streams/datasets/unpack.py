"""Archives, unpacked all or nothing: a member that would land outside the folder is refused before anything is."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Literal

from sncl.errors import SnclError

Archive = Literal["tar", "zip"]


def unpack(archive: Path, kind: Archive, folder: Path) -> None:
    """Put the top folder of the archive at ``folder``, which has the same name and does not exist yet.

    Only one process may do so at a time: what one that was killed has left is removed.
    """
    space = folder.with_name(f".{folder.name}.unpacking")
    if space.exists():
        shutil.rmtree(space)
    space.mkdir(parents=True)
    try:
        if kind == "tar":
            _untar(archive, space)
        else:
            _unzip(archive, space)
        if not (space / folder.name).is_dir():
            raise SnclError(f"The archive {archive} holds no folder '{folder.name}'; fetch it again or elsewhere.")
        os.rename(space / folder.name, folder)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise SnclError(f"The archive {archive} cannot be unpacked ({error}); delete it and fetch it again.") from error
    finally:
        shutil.rmtree(space, ignore_errors=True)


def _untar(path: Path, space: Path) -> None:
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            _refuse_escape(path, member.name, plain=member.isfile() or member.isdir())
        archive.extractall(space, filter="data")


def _unzip(path: Path, space: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            _refuse_escape(path, member.filename, plain=not stat.S_ISLNK(member.external_attr >> 16))
        archive.extractall(space)


def _refuse_escape(archive: Path, name: str, plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    if not plain or path.is_absolute() or drive or ".." in path.parts:
        raise SnclError(
            f"The archive {archive} holds '{name}', which could write outside its folder, so nothing was unpacked; "
            "delete the archive and fetch it from elsewhere."
        )
