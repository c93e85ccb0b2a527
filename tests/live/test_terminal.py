"""Names that a terminal would obey: they are shown, in a real terminal, and never sent to it."""

import io
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import user_files as files
from rich.text import Text
from terminals import OnTerminal

from sncl.live.following import Followed
from sncl.live.terminal import SafeConsole, printable

TITLE, CLEAR, CLIPBOARD = "\x1b]0;owned\x07", "\x1b[2J", "\x1b]52;c;b3duZWQ=\x07"
HOSTILE = f"{TITLE}{CLEAR}{CLIPBOARD}\x9b5m\x9d0;owned\x9c\u202egnp.exe\u2066\x08\x7f"
OBEYED = (TITLE, "\x1b]", CLEAR, "\x07", "\x9b", "\x9c", "\x9d", "\u202e", "\u2066", "\x08", "\x7f", "\u2028")
OWN = re.compile(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AK]|\r\n|\r")  # colours, the cursor, redrawn lines


def is_safe(text: str) -> bool:
    """Whether all that a terminal would obey is what rich writes by itself."""
    assert [each for each in OBEYED if each in text] == []
    return re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", OWN.sub("", text)) is None


def test_what_is_shown_of_it() -> None:
    assert printable("\x1b[2J a\r\nb\t\x9b\u202e\u2028\x7f\udcff") == (r"\x1b[2J a\r\nb\t\x9b\u202e\u2028\x7f\udcff")
    assert printable("Bärlauch 象 😀 [b] a\u0301") == "Bärlauch 象 😀 [b] a\u0301"
    assert printable(printable(HOSTILE)) == printable(HOSTILE)
    assert Followed(f"er on {HOSTILE}").title == f"er on {printable(HOSTILE)}"


def test_whatever_is_drawn_goes_through_it() -> None:
    console = SafeConsole(file=io.StringIO(), width=200, markup=False)
    console.print(HOSTILE, Text(HOSTILE), style="red")
    assert isinstance(console.file, io.StringIO)
    assert is_safe(console.file.getvalue())
    assert console.file.getvalue().count(r"\x1b]0;owned") == 2


def test_class_and_column_names(tmp_path: Path) -> None:
    name = HOSTILE.replace(";", "")  # which would be taken for what separates columns
    kinds = {"setosa": f"a{name}", "versicolor": f"b{name}", "virginica": "c"}
    rows = [[*row[:-1], kinds[row[-1]]] for row in files.flowers()]
    header = ["a", "b", "c", "d", f"soil{name}", "year", f"kind{name}"]
    files.save_table(tmp_path / "flowers.csv", rows, header)
    train = ("train", "--stream", "flowers.csv", "--method", "er", "--epochs", "1", "--device", "cpu")
    code, text = OnTerminal.sncl(*train, folder=tmp_path).end()
    assert code == 0, text
    assert is_safe(text)
    assert r"a\x1b]0owned\x07" in text and r"kind\x1b]0owned" in text and r"soil\x1b]0" in text
    code, text = OnTerminal.sncl(*train, "--target", "none", folder=tmp_path).end()
    assert code == 2
    assert is_safe(text)
    assert r"soil\x1b" in text


def test_folder_names(tmp_path: Path) -> None:
    data = files.save_small_images(tmp_path / f"data{HOSTILE}", classes=(f"ape{HOSTILE}", "bee"))
    train = ("train", "--stream", f"folder:{data}", "--method", "er", "--epochs", "1", "--device", "cpu")
    code, text = OnTerminal.sncl(*train, "--out", f"run{HOSTILE}", "--split", "2x1", folder=tmp_path).end()
    assert code == 0, text
    assert is_safe(text)
    assert r"run folder: run\x1b]0;owned" in text
    assert r"er on folder:data\x1b]0;owned" in text.replace("\r\n", "")  # the heading of the live view


@pytest.mark.parametrize("status", [404, 200])
def test_what_a_server_says(tmp_path: Path, status: int) -> None:
    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status, f"no {TITLE}{CLEAR}\x9b5m")
            self.send_header("Content-Length", f"{CLEAR}many")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        mirror = f"http://127.0.0.1:{server.server_port}/"
        fetch = ("data", "fetch", "cifar10", "--data", ".", "--mirror", mirror)
        code, text = OnTerminal.sncl(*fetch, folder=tmp_path).end()
        server.shutdown()
        thread.join()
    assert code == 2
    assert is_safe(text)
    assert text.count("error: ") == 1 and "Traceback" not in text
    assert (r"no \x1b]0;owned\x07\x1b[2J\x9b5m" in text) == (status == 404)
