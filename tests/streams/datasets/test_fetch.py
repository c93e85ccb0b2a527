"""Fetching from a server in the next thread: whole, broken off and continued, tampered with, hostile."""

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import pytest

from sncl.errors import SnclError
from sncl.streams.datasets import cifar10, download, fetch, mnist
from sncl.streams.datasets.fetch import PACKAGES, Package, Remote


class Server(ThreadingHTTPServer):
    """Serves ``files``; breaks off after ``stop_after`` bytes of a body; continues only where ``ranges``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.stop_after: int | None = None
        self.ranges = True
        self.shifted = 0
        self.length: str | None = None  # what is said of it instead
        self.partial = False  # says that all is a part
        self.elsewhere: str | None = None  # where it leads to instead
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path.removeprefix("/data/"), self.headers.get("Range")
        self.server.asked.append((name, wanted))
        body = self.server.files.get(name)
        if self.server.elsewhere is not None:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.end_headers()
            return
        if body is None:
            self.send_error(404)
            return
        start = int(re.sub(r"\D", "", wanted)) if wanted and self.server.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        start -= self.server.shifted if start else 0
        self.send_response(206 if start or self.server.partial else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        length = str(len(body) - start) if self.server.length is None else self.server.length
        if length:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body[start:] if self.server.stop_after is None else body[start:][: self.server.stop_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def tar(members: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


CIFAR = {f"cifar-10-batches-bin/{name}.bin": name.encode() * 999 for name in (*cifar10.TRAIN, *cifar10.TEST)}


def package(name: str, body: bytes, md5: str | None = None) -> dict[str, Package]:
    """The official package with the checksum of another body, for a mirror."""
    official = PACKAGES[name]
    remote = Remote(official.files[0].url, md5 or hashlib.md5(body).hexdigest())
    return {name: Package((remote,), official.kind, official.folder)}


def serve_cifar(server: Server, body: bytes) -> dict[str, Package]:
    server.files["cifar-10-binary.tar.gz"] = body
    return package("cifar10", body)


def names(root: Path) -> set[str]:
    """What there is, but for the files that are locked and the folder itself."""
    return {path.name for path in root.iterdir() if path.suffix != ".lock"}


def test_archive_is_fetched_and_unpacked(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    seen: list[tuple[str, int, int]] = []
    folder = fetch.fetch("cifar10", tmp_path, server.address, lambda *step: seen.append(step), packages)
    assert folder == [tmp_path / "cifar-10-batches-bin"]
    assert {path.name: path.read_bytes() for path in folder[0].iterdir()} == {
        Path(name).name: content for name, content in CIFAR.items()
    }
    size = len(server.files["cifar-10-binary.tar.gz"])
    assert seen[-1] == ("cifar-10-binary.tar.gz", size, size)
    assert names(tmp_path) == {"cifar-10-batches-bin"}  # no part, no archive, no temporary folder
    assert fetch.fetch("cifar10", tmp_path, server.address, None, packages) == folder
    assert len(server.asked) == 1  # data that is there is not asked for


def test_plain_files_are_fetched_and_kept(server: Server, tmp_path: Path) -> None:
    server.files = {f"{name}.gz": name.encode() for name in mnist.FILES}
    remotes = [Remote(f"http://x/{name}", hashlib.md5(body).hexdigest()) for name, body in server.files.items()]
    packages = {"mnist": Package(tuple(remotes), "files", "MNIST/raw")}
    kept = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"train-images-idx3-ubyte")  # already there, and right
    found = fetch.fetch("mnist", tmp_path, f"{server.address}/", None, packages)
    assert {path.name: path.read_bytes() for path in found} == server.files
    assert names(kept.parent) == set(server.files)
    assert len(server.asked) == 3
    assert mnist.find(tmp_path) == kept.parent


def test_broken_transfer_is_continued(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    body = server.files["cifar-10-binary.tar.gz"]
    server.stop_after = 100
    with pytest.raises(SnclError, match=f"after 100 of {len(body)} bytes; run the same command again to resume"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert names(tmp_path) == {"cifar-10-binary.tar.gz.part"}
    server.stop_after = None
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100-"]
    assert names(tmp_path) == {"cifar-10-batches-bin"}


def test_server_that_cannot_continue_starts_over(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    server.ranges = False
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(server.files["cifar-10-binary.tar.gz"][:50])
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert [wanted for _, wanted in server.asked] == ["bytes=50-"]
    assert names(tmp_path) == {"cifar-10-batches-bin"}


def test_server_that_continues_elsewhere_is_asked_for_everything(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    server.shifted = 10
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(server.files["cifar-10-binary.tar.gz"][:50])
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert [wanted for _, wanted in server.asked] == ["bytes=50-", None]


def test_part_longer_than_the_file_is_dropped(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"x" * 100_000)
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert names(tmp_path) == {"cifar-10-batches-bin"}


def test_complete_part_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(server.files["cifar-10-binary.tar.gz"])
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert server.asked == []
    assert names(tmp_path) == {"cifar-10-batches-bin"}


@pytest.mark.parametrize("length", ["abc", "", "-5", "1e6", "١٢", "7, 7"])
def test_a_length_that_is_no_number_is_not_believed(server: Server, tmp_path: Path, length: str) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    server.length = length.encode().decode("latin-1")
    told: list[int] = []
    fetch.fetch("cifar10", tmp_path, server.address, lambda name, done, total: told.append(total), packages)
    assert names(tmp_path) == {"cifar-10-batches-bin"}
    assert set(told) == {0}


@pytest.mark.parametrize(("length", "said"), [("10", "MD5 sum"), ("99999999", "of 99999999 bytes")])
def test_a_wrong_length_puts_nothing_in_place(server: Server, tmp_path: Path, length: str, said: str) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    server.length = length
    with pytest.raises(SnclError, match=said):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert not (tmp_path / "cifar-10-batches-bin").exists()
    server.length = None
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)  # as it says
    assert names(tmp_path) == {"cifar-10-batches-bin"}


@pytest.mark.parametrize("have", [0, 50])
def test_a_server_that_only_sends_parts_is_asked_twice_at_most(server: Server, tmp_path: Path, have: int) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    server.partial, server.ranges = True, False
    if have:
        (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"x" * have)
    with pytest.raises(SnclError, match=r"sends a part .* when asked for all"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert len(server.asked) == 2
    assert names(tmp_path) == set()


def test_a_continuation_of_something_else_is_thrown_away(server: Server, tmp_path: Path) -> None:
    """The range is the right one, what comes is not what follows."""
    packages = serve_cifar(server, tar(dict(CIFAR)))
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"x" * 50)
    with pytest.raises(SnclError, match="MD5 sum"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert names(tmp_path) == set()
    fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert names(tmp_path) == {"cifar-10-batches-bin"}


@pytest.mark.parametrize("scheme", ["file", "ftp", "data", "FILE"])
def test_nobody_is_led_out_of_the_web(server: Server, tmp_path: Path, scheme: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    server.elsewhere = f"{scheme}://{secret}" if scheme != "data" else "data:text/plain,x"
    with pytest.raises(SnclError, match=rf"{scheme}:.* (which is not followed|is not allowed)"):
        fetch.fetch("cifar10", tmp_path, server.address)
    with pytest.raises(SnclError, match="not a web address"):
        fetch.fetch("cifar10", tmp_path, server.elsewhere)
    assert names(tmp_path) == {"secret"}


def test_within_the_web_redirections_are_followed(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    with Server() as first:
        first.elsewhere = f"{server.address}/cifar-10-binary.tar.gz"
        thread = threading.Thread(target=first.serve_forever, args=(0.01,))
        thread.start()
        fetch.fetch("cifar10", tmp_path, first.address, None, packages)
        first.shutdown()
        thread.join()
    assert names(tmp_path) == {"cifar-10-batches-bin"}


def test_https_does_not_lead_to_http() -> None:
    follow = download._redirects().redirect_request
    secure, plain = (Request(f"{scheme}://example.org/a") for scheme in ("https", "http"))
    with pytest.raises(SnclError, match="which is not followed"):
        follow(secure, None, 302, "", {}, "http://example.org/b")
    for request in (secure, plain):
        assert follow(request, None, 302, "", {}, "https://example.org/b").full_url == "https://example.org/b"


def test_two_do_not_fetch_the_same_at_once(server: Server, tmp_path: Path) -> None:
    """The second one while the first is in the middle of it."""
    packages = serve_cifar(server, tar(dict(CIFAR)))
    refused: list[str] = []

    def meanwhile(*_: object) -> None:
        try:
            fetch.fetch("cifar10", tmp_path, server.address, None, packages)
        except SnclError as error:
            refused.append(str(error))

    fetch.fetch("cifar10", tmp_path, server.address, meanwhile, packages)
    assert refused and all("Another process is fetching cifar10" in text for text in refused)
    assert len(server.asked) == 1
    assert names(tmp_path) == {"cifar-10-batches-bin"}


KILLED = """
import os, shutil, sys, tarfile
from pathlib import Path
from sncl.streams.datasets.unpack import unpack

extract = tarfile.TarFile._extract_member  # killed in the middle of the second member

def killed(self, member, *rest, **options):
    if member.name.endswith("data_batch_2.bin"):
        os._exit(9)
    extract(self, member, *rest, **options)

tarfile.TarFile._extract_member = killed
unpack(Path(sys.argv[1]), "tar", Path(sys.argv[2]))
"""


def test_what_a_killed_process_unpacked_is_not_used_and_swept_away(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    archive, folder = tmp_path / "cifar-10-binary.tar.gz", tmp_path / "cifar-10-batches-bin"
    archive.write_bytes(server.files[archive.name])
    command = [sys.executable, "-c", KILLED, str(archive), str(folder)]
    assert subprocess.run(command, check=False).returncode == 9
    assert names(tmp_path) == {archive.name, ".cifar-10-batches-bin.unpacking"}
    assert cifar10.find(tmp_path) is None
    assert fetch.fetch("cifar10", tmp_path, server.address, None, packages) == [folder]
    assert names(tmp_path) == {folder.name}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        Path(name).name: content for name, content in CIFAR.items()
    }


def test_wrong_checksum_puts_nothing_in_place(server: Server, tmp_path: Path) -> None:
    body = tar(dict(CIFAR))
    serve_cifar(server, body)
    with pytest.raises(SnclError) as caught:
        fetch.fetch("cifar10", tmp_path, server.address, None, package("cifar10", body, md5="0" * 32))
    assert "0" * 32 in str(caught.value)
    assert hashlib.md5(body).hexdigest() in str(caught.value)
    assert names(tmp_path) == set()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


@pytest.mark.parametrize(
    "bad",
    [
        {"../escaped": b"x"},
        {"cifar-10-batches-bin/../../escaped": b"x"},
        {"/tmp/escaped": b"x"},
        {"link": link("cifar-10-batches-bin/link", "/")},
        {"link": link("cifar-10-batches-bin/link", "data_batch_1.bin")},
        {"link": link("cifar-10-batches-bin/hard", "../escaped", tarfile.LNKTYPE)},
        {"device": link("cifar-10-batches-bin/fifo", "", tarfile.FIFOTYPE)},
    ],
    ids=["parent", "inner-parent", "absolute", "link", "inner-link", "hard-link", "fifo"],
)
def test_hostile_tar_is_refused_before_anything_is_unpacked(
    server: Server, tmp_path: Path, bad: dict[str, bytes | tarfile.TarInfo]
) -> None:
    root = tmp_path / "root"
    packages = serve_cifar(server, tar({**CIFAR, **bad}))
    with pytest.raises(SnclError, match="could write outside"):
        fetch.fetch("cifar10", root, server.address, None, packages)
    assert names(root) == {"cifar-10-binary.tar.gz"}
    assert names(tmp_path) == {"root"}


@pytest.mark.parametrize("bad", ["../escaped", "/escaped", "..\\escaped", "C:/escaped", "link"])
def test_hostile_zip_is_refused_before_anything_is_unpacked(server: Server, tmp_path: Path, bad: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", "n01\n")
        info = zipfile.ZipInfo(bad)
        info.external_attr = (0o120777 if bad == "link" else 0o100644) << 16
        archive.writestr(info, "/etc/passwd")
    server.files["tiny-imagenet-200.zip"] = file.getvalue()
    root = tmp_path / "root"
    with pytest.raises(SnclError, match="could write outside"):
        fetch.fetch("tiny-imagenet", root, server.address, None, package("tiny-imagenet", file.getvalue()))
    assert names(root) == {"tiny-imagenet-200.zip"}
    assert names(tmp_path) == {"root"}


def test_zip_is_fetched_and_unpacked(server: Server, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("wnids.txt", "val/val_annotations.txt", "train/n01/images/n01_0.JPEG"):
            archive.writestr(f"tiny-imagenet-200/{name}", name)
    server.files["tiny-imagenet-200.zip"] = file.getvalue()
    packages = package("tiny-imagenet", file.getvalue())
    (folder,) = fetch.fetch("tiny-imagenet", tmp_path, server.address, None, packages)
    assert (folder / "train" / "n01" / "images" / "n01_0.JPEG").read_text() == "train/n01/images/n01_0.JPEG"
    assert names(tmp_path) == {"tiny-imagenet-200"}


def test_archive_of_something_else(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar({"other/file": b"x"}))
    with pytest.raises(SnclError, match="holds no folder 'cifar-10-batches-bin'"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    packages = serve_cifar(server, b"no archive")
    with pytest.raises(SnclError, match="cannot be unpacked"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)


def test_incomplete_folder_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    packages = serve_cifar(server, tar(dict(CIFAR)))
    mine = tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with pytest.raises(SnclError, match="is there but incomplete; move it away"):
        fetch.fetch("cifar10", tmp_path, server.address, None, packages)
    assert mine.read_bytes() == b"mine"
    assert server.asked == []


def test_no_server_no_file_no_address(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SnclError, match="answered 404"):
        fetch.fetch("cifar10", tmp_path, server.address)
    with pytest.raises(SnclError, match="not a web address"):
        fetch.fetch("cifar10", tmp_path, "somewhere")
    with pytest.raises(SnclError, match="run the same command again"):
        fetch.fetch("cifar10", tmp_path, "http://127.0.0.1:1/")
    with pytest.raises(SnclError, match="mnist, cifar10, tiny-imagenet"):
        fetch.fetch("digits", tmp_path)
