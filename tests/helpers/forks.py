"""Many short programs out of one that has loaded torch: each is a fork, with its files under attack where asked.

:class:`Forks` is what tests use. The other half of this file is the server they talk to, which runs by itself, with
the shim of ``tests/reliability/shim.c`` in front of the C library.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

HELPERS = Path(__file__).parent
SHIM = HELPERS.parent / "reliability" / "shim.c"
ACTIONS = ("nothing", "kill before", "kill after", "kill half", "fail once", "fail on", "stop")  # as the shim counts
PRELOADED = (
    *("sncl.cli.commands", "sncl.cli.jobs", "sncl.runs.summary", "sncl.runs.perform", "sncl.runs.plan"),
    *("sncl.live.view", "sncl.training.follow", "sncl.training.tensorboard", "pydantic.fields", "workloads"),
)
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}


@dataclass(frozen=True)
class Attack:
    """What happens at the n-th call that changes files below ``folder``; ``record`` is where all are written down."""

    folder: str
    at: int = 0
    action: str = "nothing"
    error: str = ""  # the name of an errno
    record: str = ""

    def environment(self) -> dict[str, str]:
        """The same for a program of its own."""
        facts = {"FOLDER": self.folder, "AT": str(self.at), "ACTION": str(ACTIONS.index(self.action))}
        facts["ERROR"] = str(getattr(errno, self.error, 0))
        return {f"SHIM_{key}": value for key, value in facts.items()}


class Ended(NamedTuple):
    """How a fork ended, or that it was stopped: an exit code, or a signal as a negative number; and what it wrote."""

    code: int
    out: str
    err: str
    stopped: bool = False

    def lines(self) -> list[str]:
        """What it said about an error."""
        assert "Traceback" not in self.err, self.err
        return self.err.splitlines()


def why_not() -> str:
    """Why there can be no attack on this machine; empty where there can."""
    if sys.platform != "linux":
        return "attacks through LD_PRELOAD need Linux"
    return "" if shutil.which("cc") else "no C compiler (cc) to build the shim with"


def build_shim(folder: Path) -> Path:
    library = folder / "shim.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(SHIM), "-ldl"]
    subprocess.run(command, check=True)
    return library


class Forks:
    """The server, seen from a test."""

    def __init__(self, folder: Path) -> None:
        self.library, self.words, self.started = build_shim(folder), folder / "words", 0
        self.words.mkdir()
        path = os.pathsep.join([str(HELPERS), *(each for each in sys.path if each)])
        environment = os.environ | ONE_THREAD | {"LD_PRELOAD": str(self.library), "PYTHONPATH": path}
        self.server = subprocess.Popen(
            [sys.executable, __file__, str(self.library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def sncl(self, *arguments: str | Path, attack: Attack | None = None) -> Ended:
        """A command of sncl, to its end."""
        return self.wait(self.start("sncl", *map(str, arguments), attack=attack))

    def call(self, function: str, *arguments: Any, attack: Attack | None = None) -> Ended:
        """A function of the module ``workloads``, to its end."""
        return self.wait(self.start(function, *arguments, attack=attack))

    def start(self, what: str, *arguments: Any, attack: Attack | None = None) -> int:
        self.started += 1
        facts = {"what": what, "arguments": arguments, "attack": None if attack is None else asdict(attack)}
        return int(self._ask(facts | {"words": str(self.words / str(self.started))}))

    def wait(self, pid: int) -> Ended:
        """Wait until a fork has ended or is stopped."""
        code, stopped, words = self._ask({"wait": pid})
        return Ended(code, Path(words + ".out").read_text(), Path(words + ".err").read_text(), stopped)

    def go_on(self, pid: int) -> None:
        self._ask({"go on": pid})

    def close(self) -> None:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())


# --- the server ----------------------------------------------------------------------------------------------------


class _Server:
    def __init__(self, library: str) -> None:
        for name in PRELOADED:
            importlib.import_module(name)
        _perform("sncl", ["list"])  # loads what reads options
        self.shim = ctypes.CDLL(library)
        self.words: dict[int, str] = {}  # of the forks that run

    def answer(self, request: dict[str, Any]) -> Any:
        if "go on" in request:
            return os.kill(request["go on"], signal.SIGCONT)
        if "wait" in request:
            return self.wait(request["wait"])
        pid = os.fork()
        if pid == 0:
            self.work(**request)
        self.words[pid] = request["words"]
        return pid

    def wait(self, pid: int) -> tuple[int, bool, str]:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return 0, True, self.words[pid]
        return os.waitstatus_to_exitcode(status), False, self.words.pop(pid)

    def end(self) -> None:
        for pid in self.words:
            os.kill(pid, signal.SIGKILL)

    def work(self, what: str, arguments: Sequence[Any], attack: dict[str, Any] | None, words: str) -> None:
        """What a fork does; it never returns."""
        code = 70
        try:
            for number, name in enumerate((os.devnull, words + ".out", words + ".err")):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
            if attack is not None:
                self.arm(Attack(**attack))
            code = _perform(what, arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def arm(self, attack: Attack) -> None:
        record = os.open(attack.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if attack.record else -1
        number, action = getattr(errno, attack.error, 0), ACTIONS.index(attack.action)
        self.shim.shim_arm(os.fsencode(attack.folder), ctypes.c_long(attack.at), action, number, record)


def _perform(what: str, arguments: Sequence[Any]) -> int:
    try:
        if what == "sncl":
            sys.argv = ["sncl", *arguments]
            importlib.import_module("sncl.cli").main()
        else:
            getattr(importlib.import_module("workloads"), what)(*arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def serve(library: str) -> None:
    """Answer one line of JSON after the other, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    server = _Server(library)
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()
    server.end()


if __name__ == "__main__":
    serve(sys.argv[1])
