"""Programs in a terminal of their own: what they write there, byte by byte."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the cursor


class OnTerminal:
    """A program with a session and a terminal of its own."""

    def __init__(self, command: Sequence[str], folder: Path, columns: int = 120) -> None:
        master, slave = pty.openpty()
        self.master, self.words = master, list[bytes]()
        self.reader = threading.Thread(target=self._read)
        environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
        environment |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.reader.start()

    @classmethod
    def sncl(cls, *arguments: str | Path, folder: Path) -> Self:
        return cls([sys.executable, "-m", "sncl.cli", *map(str, arguments)], folder)

    def _read(self) -> None:
        while True:
            try:
                self.words.append(os.read(self.master, 65536))
            except OSError:  # nobody writes any more
                return

    def end(self) -> tuple[int, str]:
        """Its exit code and all that it wrote, when it has ended."""
        try:
            code = self.process.wait(120)
            self.reader.join(20)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self.master)
        return code, b"".join(self.words).decode(errors="surrogateescape")
