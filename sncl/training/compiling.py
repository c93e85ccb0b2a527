"""Compiling steps for a GPU: one at a time in a process, and beside the runs that are under way.

The compiler works through Python for half a minute, and stands in for the global generator meanwhile: other threads of
its process wait. What it makes is kept (:mod:`sncl.training.code_cache`), and what is kept takes it a tenth of that
time. A run whose steps are unlike those of the runs beside it therefore lets another process compile them first, see
:meth:`Variants.taking_part`. Code is the same bits wherever it was compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, RLock
from typing import Any

import torch

from sncl.training.code_cache import keep_code
from sncl.training.step import Observe, observe

COMPILED_VARIANTS = 256  # of the step that may be compiled in one process: methods, settings, shapes
COMPILING = RLock()  # compiler and capture are not made for several threads at a time


def compiled_observe() -> Observe:
    """The forward half and, through it, the backward half of a step, compiled.

    Random numbers stay those of the eager step, and no kernel is chosen by timing it, so that two processes agree.

    Gates and taps are hooks, which the compiler takes for unchanging unless told otherwise: a network with gates would
    be trained by the code of one without that was compiled before it in the same process.
    """
    keep_code()
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_VARIANTS)
    compiled: Any = torch.compile(observe, dynamic=False, options={"fallback_random": True, "deterministic": True})
    return compiled  # type: ignore[no-any-return]


class Variants:
    """The variants of the step that runs of this process are made of: the same methods, settings and shapes."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._running: Counter[str] = Counter()
        self._compiled: dict[str, Event] = {}  # set: also by this process itself, which has no need to be helped

    @contextmanager
    def taking_part(self, variant: str, compile_elsewhere: Callable[[], None]) -> Iterator[None]:
        """Run steps of this variant within the block.

        Where only others run here and it is new, it is first compiled elsewhere, and nobody waits but those that need
        it. The first variant of a process is compiled in it: there is nobody to hold up.
        """
        with self._changing:
            is_new, others = variant not in self._compiled, self._running.total() > self._running[variant]
            compiled = self._compiled.setdefault(variant, Event())
            self._running[variant] += 1
        try:
            if is_new:
                try:
                    if others:
                        compile_elsewhere()
                finally:
                    compiled.set()
            compiled.wait()
            yield
        finally:
            with self._changing:
                self._running[variant] -= 1


VARIANTS = Variants()  # one compiler in a process
