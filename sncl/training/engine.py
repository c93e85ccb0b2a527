"""Where and how a training step is executed: device, precision, and as it is written or as one CUDA graph.

No method, network or memory knows of this.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.methods.method import Method, Outcome
from sncl.tensors.fields import Fields
from sncl.tensors.random import Randomness
from sncl.tensors.transfer import upload
from sncl.training.compiling import COMPILING, compiled_observe
from sncl.training.descent import Descent
from sncl.training.finite import FiniteCheck
from sncl.training.step import Step, StepInput


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise SnclError(f"there is no device {name!r}; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SnclError('no CUDA device was found here; use `device="cpu"`')
    return device


def choose_engine(name: str, device: torch.device, method: Method) -> str:
    """The engine to use, graph or eager; auto takes the graph wherever it works."""
    if name not in ("auto", "eager", "graph"):
        raise SnclError(f"the engine is auto, eager or graph, not {name!r}")
    if name == "graph" and device.type != "cuda":
        raise SnclError(f"the engine graph needs a CUDA device, not {device}; use auto or eager")
    if name == "graph" and not method.capturable:
        raise SnclError(
            f"{type(method).__name__} decides things on the host in every step; use the engine auto or eager"
        )
    return "graph" if device.type == "cuda" and method.capturable and name != "eager" else "eager"


def choose_precision(name: str, device: torch.device, method: Method) -> torch.dtype:
    """What the network's passes are computed in during training; weights and losses stay in single precision.

    Auto takes bfloat16 wherever it works.
    """
    if name not in ("auto", "float32", "bfloat16"):
        raise SnclError(f"the precision is auto, float32 or bfloat16, not {name!r}")
    if name == "bfloat16" and device.type != "cuda":
        raise SnclError(f"bfloat16 needs a CUDA device, not {device}; use auto or float32")
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" and method.bf16_safe else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def exact_kernels() -> AbstractContextManager[None]:
    """Convolutions that give the same bits every time, and are not chosen by timing them."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Compute on so many cores: how a sum is split among them moves its last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Eager:
    """The step as it is written."""

    def __init__(self, step: Step, random: Randomness, device: torch.device) -> None:
        self.step = step
        self.random = random
        self.device = device

    def __call__(self, given: StepInput, usual: bool) -> Outcome:
        """Make one step. ``usual``: a full batch with full replay, of which there will be many more."""
        given = given.with_drawn([upload(value, self.device) for value in given.drawn()])
        with self.random.as_global("gates"):
            return self.step(given)

    def finite_check(self) -> FiniteCheck | None:
        """A first look at what the last step changed: parameters that move and all buffers, where these are known."""
        optimizer = self.step.optimizer
        if not isinstance(optimizer, Descent):
            return None
        moved = chain.from_iterable(parameters for parameters, _ in optimizer.groups)
        return FiniteCheck(chain(moved, self.step.net.body.buffers()))

    def forget(self) -> None:
        """Tensors of the method, network or memory may have been replaced by others."""


class _Capture(NamedTuple):
    """A captured step: the tensors it reads on the device, and those it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Fields
    packed: Tensor
    losses: Tensor
    outcome: Outcome


class Graph(Eager):
    """The usual step compiled (where one backward pass does), captured as a CUDA graph and replayed; others as written.

    Which of the two a step is depends on its shapes alone, never on what ran before in this process: a run that is
    resumed repeats the same bits. The first usual step runs compiled but not captured, which is the same arithmetic.
    """

    def __init__(self, step: Step, random: Randomness, device: torch.device) -> None:
        super().__init__(step, random, device)
        self.compiled = replace(step, observe=compiled_observe()) if step.method.one_backward else step
        self._captured: dict[Hashable, _Capture | None] = {}  # None: has run, but is not captured yet

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("compiled", "_captured")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["step"], state["random"], state["device"])  # type: ignore[misc]  # a copy captures anew

    def __call__(self, given: StepInput, usual: bool) -> Outcome:
        if not usual:
            return super().__call__(given, usual)
        host, form = pack_drawn(given.drawn()), shapes(given)
        captured = self._captured.get(form)
        if captured is None:
            own = given._replace(batch={name: value.clone() for name, value in given.batch.items()})
            buffer = host.to(self.device)
            with COMPILING, self.random.as_global("gates"):
                captured = self._capture(own, buffer) if form in self._captured else None
                self._captured[form] = captured
                if captured is None:
                    return self._compiled_step(unpack_drawn(own, buffer))
        for name, value in given.batch.items():
            captured.batch[name].copy_(value)
        captured.packed.copy_(host, non_blocking=True)
        captured.graph.replay()
        losses = captured.losses.clone().unbind()  # the graph's own are overwritten by the next step
        return captured.outcome._replace(losses=dict(zip(captured.outcome.losses, losses, strict=True)))

    def forget(self) -> None:
        self._captured = {}

    def _compiled_step(self, given: StepInput) -> Outcome:
        """A step that is not captured; from the first one on without the compiler, where there is none that works."""
        try:
            return self.compiled(given)
        except torch._dynamo.exc.TorchDynamoException as error:
            what = str(error).strip().partition("\n")[0]
            warnings.warn(f"the training step cannot be compiled here and runs slower: {what}", stacklevel=2)
            self.compiled = self.step
            return self.compiled(given)

    def _capture(self, given: StepInput, buffer: Tensor) -> _Capture:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outcome = self.compiled(unpack_drawn(given, buffer))
                losses = torch.stack(list(outcome.losses.values()))
        except RuntimeError as error:
            raise SnclError(
                "a step of this network cannot be captured as a CUDA graph, since it asks the GPU for a value; use "
                '`engine="eager"`'
            ) from error
        return _Capture(graph, given.batch, buffer, losses, outcome)


def shapes(given: StepInput) -> Hashable:
    """What two inputs have in common that the same captured step can serve."""
    batch = ((name, value.shape, value.dtype) for name, value in given.batch.items())
    return (*batch, *((value.shape, value.dtype) for value in given.drawn()))


def pack_drawn(drawn: Sequence[Tensor]) -> Tensor:
    """Small host tensors end to end in one piece of pinned memory: one copy to the device, and no waiting for it.

    Slots are whole numbers far below 2^53, so double precision holds them exactly.
    """
    total = sum(value.numel() for value in drawn)
    host = torch.empty(total, dtype=torch.float64, pin_memory=torch.cuda.is_available())
    start = 0
    for value in drawn:
        host[start : (start := start + value.numel())] = value.flatten()
    return host


def unpack_drawn(given: StepInput, buffer: Tensor) -> StepInput:
    """The input with what was drawn read from ``buffer``, a copy of what :func:`pack_drawn` made of it."""
    like = given.drawn()
    parts = buffer.split([value.numel() for value in like])
    return given.with_drawn([part.view(value.shape).to(value.dtype) for part, value in zip(parts, like, strict=True)])
