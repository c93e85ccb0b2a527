"""One file over HTTP: resumed where an earlier try broke off, and renamed only when its checksum is right.

Nothing a server says is believed: its lengths and ranges are hints, and it may not lead to anything but the web.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
            length = response.headers.get("Content-Length", "")
            total = done + int(length) if length.isascii() and length.isdigit() else 0
            with part.open("ab" if continued else "wb") as file:
                while block := response.read(BLOCK):
                    file.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(name, done, total)
    except (OSError, HTTPException, ValueError) as error:  # the last from chunks of no length
        raise SnclError(f"The transfer of {url} broke off ({error}); run the same command again to resume.") from error
    if done < total:
        raise SnclError(
            f"The transfer of {url} broke off after {done} of {total} bytes; run the same command again to resume."
        )


def _open(url: str, part: Path) -> HTTPResponse:
    """Ask for the rest of the file, or for all of it where the server will not continue or there is no part yet."""
    have = part.stat().st_size if part.is_file() else 0
    response = _answer(url, have)
    if response is not None and (
        response.status == 200 or response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    ):
        return response
    if response is not None:
        response.close()
    part.unlink(missing_ok=True)  # it is longer than the file, or the server goes on from elsewhere
    response = _answer(url, 0)
    if response is None or response.status != 200:
        raise SnclError(f"The server sends a part of {url} when asked for all of it; give another `mirror`.")
    return response


def _answer(url: str, have: int) -> HTTPResponse | None:
    """What the server answers when asked for what follows ``have`` bytes; None where it says that nothing does."""
    from urllib.error import HTTPError
    from urllib.request import Request, build_opener

    if not url.lower().startswith(("http://", "https://")):
        raise SnclError(f"'{url}' is not a web address; a mirror looks like https://example.org/data/.")
    headers = {"User-Agent": "sncl"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response: HTTPResponse = build_opener(_redirects()).open(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if have and error.code == 416:
            return None
        raise SnclError(
            f"The server answered {error.code} ({error.reason}) to {url}; give another `mirror`."
        ) from error
    return response


def _redirects() -> Any:
    """How redirections are followed: within the web, and never from https to http."""
    from urllib.request import HTTPRedirectHandler, Request

    class WithinTheWeb(HTTPRedirectHandler):
        def redirect_request(
            self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Request | None:
            allowed = ("https",) if req.type == "https" else ("http", "https")
            if newurl.partition(":")[0].lower() not in allowed:
                raise SnclError(
                    f"The server leads from {req.full_url} to {newurl}, which is not followed; give another `mirror`."
                )
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    return WithinTheWeb()
