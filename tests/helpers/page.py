"""Run a page of the documentation as its reader would: ``python page.py PAGE`` in an empty folder.

``python page.py`` runs one page after the other, each in a process of its own that need not load torch: a fork of this
one. It reads lines of JSON, [page, folder, file for what is printed, packages it needs], and answers each with an exit
code.

Blocks marked ``python`` and ``console`` are run from top to bottom, code in one namespace. Blocks that are only to be
read are marked otherwise: ``py`` and ``sh`` (which look the same), ``text``, ``toml``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PRELOADED = ("sncl.cli.commands", "sncl.runs.perform", "sncl.live.view", "sncl.estimator.classifier", "pydantic.fields")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    kind: str
    text: str
    line: int  # of the page, where the text begins


def blocks(page: Path, kinds: tuple[str, ...] = ("python", "console")) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = (Block(each[1], each[2], text.count("\n", 0, each.start(2)) + 1) for each in FENCE.finditer(text))
    return [block for block in found if block.kind in kinds]


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block as words. One may go over several lines in quotes; comments are left out."""
    begun = ""
    for line in text.splitlines():
        begun += line + "\n"
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:  # a quotation that is still open
            continue
        begun = ""
        if words:
            yield words
    assert not begun, f"a quotation that does not end: {begun}"


def expanded(word: str) -> list[str]:
    """What a shell would make of a word with a star."""
    return sorted(glob(word)) or [word] if "*" in word else [word]


def run_command(words: list[str]) -> None:
    from sncl import cli

    program, *arguments = (part for word in words for part in expanded(word))
    if program == "sncl":  # in this process: a new one would import torch again
        sys.argv = [program, *arguments]
        try:
            cli.main()
        except SystemExit as ended:
            assert ended.code == 0, f"ended with {ended.code}: {shlex.join(words)}"
    else:
        assert program == "python", f"a page runs sncl and python, not {program!r}; mark what is only shown with sh"
        subprocess.run([sys.executable, *arguments], check=True)


def run_page(page: Path) -> None:
    space = ModuleType("__main__")  # without a file: processes that are started from here do not run this again
    sys.modules["__main__"] = space
    for block in blocks(page):
        if block.kind == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), vars(space))
            continue
        for words in commands(block.text):
            run_command(words)


def run_fork(page: str, folder: str, printed: str) -> None:
    """What a fork does: run a page in its folder, and end. What is printed goes into a file, and nothing is read."""
    code = 1
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, printed), (2, printed + ".err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), number)
        run_page(Path(page))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@cache
def load(package: str) -> None:
    """What takes long at the first use of a package and is the same for every page."""
    if package == "onnx":  # its translations of all operations
        from torch import nn, zeros

        from sncl.training.exporting.formats import FORMATS

        FORMATS["onnx"].make(nn.Linear(1, 1).eval(), zeros(2, 1), "rows", {})
    else:
        importlib.import_module(package)


def serve() -> None:
    """Answer one line after the other, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    for name in PRELOADED:
        load(name)
    measures = importlib.import_module("sncl.export.measures")
    measures.TURN_SECONDS = 0.0  # no page is about how long a model takes
    for line in sys.stdin:
        *what, needed = json.loads(line)
        for package in needed:
            load(package)
        gc.freeze()  # forks do not look through what they have not made
        pid = os.fork()
        if pid == 0:
            run_fork(*what)
        _, status = os.waitpid(pid, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


if __name__ == "__main__":
    run_page(Path(sys.argv[1])) if sys.argv[1:] else serve()
