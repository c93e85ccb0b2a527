"""Ctrl-C and SIGTERM: a run that is told to stop stores a checkpoint behind its batch, and ends.

A signal comes at any moment. Inside :func:`finishing` it only leaves a note, and whoever works there looks for it with
:func:`stop_asked`; elsewhere it raises :class:`Stopped` at once. While modules are being loaded, where an exception may
be swallowed or changed, and when it comes a second time, it ends the process without a further word.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"
ECHO_SECONDS = 0.3  # a signal that comes again within this time is the same one: `timeout` sends it twice


class Stopped(KeyboardInterrupt):
    """The process was told to stop."""


class _Asked:
    """What this process was told, and how many blocks are to be finished first."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.when = 0.0
        self.blocks = 0
        self.counting = threading.Lock()
        self.last_words = ""


_asked = _Asked()


def heed_signals(last_words: str) -> None:
    """Stop by Ctrl-C and SIGTERM as this module says; ``last_words`` are written where nobody else could."""
    _asked.number, _asked.last_words = None, last_words
    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            if signal.getsignal(each) != signal.SIG_IGN:  # as nohup and shells have it
                signal.signal(each, _told)


@contextmanager
def heeding() -> Iterator[None]:
    """Stop by Ctrl-C as this module says while the block runs, in a program that is not ours.

    A second Ctrl-C raises wherever it comes. Afterwards everything is as it was. Threads other than the main one are
    told of no signal, and nothing changes there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _told_in_passing)
    _asked.number = None
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        _asked.number = None


def heed_parent() -> None:
    """Stop by the SIGTERM of a parent process, which may send it more than once and ends this one if it must."""
    signal.signal(signal.SIGTERM, _told_by_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def end_at_once() -> None:
    """From here on a signal ends the process: it has nothing left to store."""
    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            if signal.getsignal(each) == _told:
                signal.signal(each, signal.SIG_DFL)


def stop_asked() -> bool:
    """Whether the process was told to stop."""
    return _asked.number is not None


def stop_code() -> int:
    """What a shell calls the signal that was sent; that of Ctrl-C where none was."""
    return 128 + (_asked.number or signal.SIGINT)


def stop_if_asked() -> None:
    """Stop here and now, if that was asked for."""
    if stop_asked():
        raise Stopped


@contextmanager
def finishing() -> Iterator[None]:
    """Let a signal wait until this block looks for it, or has ended."""
    with _asked.counting:
        _asked.blocks += 1
    try:
        yield
    finally:
        with _asked.counting:
            _asked.blocks -= 1


def _told(number: int, frame: FrameType | None) -> None:
    if _asked.number is not None:
        if time.monotonic() - _asked.when >= ECHO_SECONDS:
            _leave(number)
        return
    _asked.number, _asked.when = number, time.monotonic()
    if _asked.blocks:
        return
    if _loading(frame):
        _leave(number, _asked.last_words)
    raise Stopped


def _told_in_passing(number: int, frame: FrameType | None) -> None:
    again = _asked.number is not None
    if again and time.monotonic() - _asked.when < ECHO_SECONDS:
        return
    _asked.number, _asked.when = number, time.monotonic()
    if again or not _asked.blocks:
        raise Stopped


def _told_by_parent(number: int, frame: FrameType | None) -> None:
    if _asked.number is None:
        _asked.number = number
        if not _asked.blocks:
            raise Stopped


def _loading(frame: FrameType | None) -> bool:
    """Whether a module is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave(number: int, words: str = "") -> None:
    """End the process at once, with the terminal as it was."""
    with suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + (f"{words}\n".encode() if words else b""))
    os._exit(128 + number)
