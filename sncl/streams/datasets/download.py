"""One file over HTTP: resumed where an earlier try broke off, and renamed only when its checksum is right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sncl.errors import SnclError

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 18

TransferProgress = Callable[[str, int, int], None]


def download(url: str, target: Path, md5: str, progress: TransferProgress | None = None) -> None:
    """Fetch ``url`` to ``target``; the file grows as ``<target>.part``, which a broken transfer leaves for next time.

    ``progress(name, bytes so far, bytes in all or 0 where the server does not say)`` is called as it grows.
    """
    if target.is_file() and md5_of(target) == md5:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    if not (part.is_file() and md5_of(part) == md5):
        _transfer(url, part, target.name, progress)
    actual = md5_of(part)
    if actual != md5:
        part.unlink()
        raise SnclError(
            f"The file {url} has the MD5 sum {actual} instead of {md5} and was deleted; "
            "run the same command again, or give another `mirror`."
        )
    os.replace(part, target)


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _transfer(url: str, part: Path, name: str, progress: TransferProgress | None) -> None:
    """Append to the part what is still missing of it."""
    from http.client import HTTPException

    try:
        with _open(url, part) as response:
            continued = response.status == 206
            done = part.stat().st_size if continued else 0
            length = response.headers.get("Content-Length")
            total = done + int(length) if length is not None else 0
            with part.open("ab" if continued else "wb") as file:
                while block := response.read(BLOCK):
                    file.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(name, done, total)
    except (OSError, HTTPException) as error:
        raise SnclError(f"The transfer of {url} broke off ({error}); run the same command again to resume.") from error
    if done < total:
        raise SnclError(
            f"The transfer of {url} broke off after {done} of {total} bytes; run the same command again to resume."
        )


def _open(url: str, part: Path) -> HTTPResponse:
    """Ask for the rest of the file, or for all of it where the server will not continue or there is no part yet."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    have = part.stat().st_size if part.is_file() else 0
    try:
        request = Request(url, headers={"User-Agent": "sncl"} | ({"Range": f"bytes={have}-"} if have else {}))
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT)
    except ValueError as error:
        raise SnclError(f"'{url}' is not a web address; a mirror looks like https://example.org/data/.") from error
    except HTTPError as error:
        error.close()
        if have and error.code == 416:  # the part is longer than the file: it cannot be the start of it
            part.unlink()
            return _open(url, part)
        raise SnclError(
            f"The server answered {error.code} ({error.reason}) to {url}; give another `mirror`."
        ) from error
    if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        response.close()
        part.unlink()
        return _open(url, part)
    return response
