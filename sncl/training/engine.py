"""How a training step is executed: as it is written, or compiled and replayed as one CUDA graph.

No method, network or memory knows of this. A step is a function of tensors alone: everything random about it that is
small was drawn on the host before and comes in with the batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.method import Method, Outcome
from sncl.networks.taps import Tapped
from sncl.streams.transforms import Transform, training_input
from sncl.tensors.fields import Fields, inputs, named, rows
from sncl.tensors.random import Randomness
from sncl.tensors.transfer import upload
from sncl.training.descent import Optimizer

VARIANTS = 256  # of the step that may be compiled in one process: methods, settings, shapes
COMPILING = RLock()  # compiler and capture are not made for several threads at a time


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


def computed_in(precision: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Let passes through a network be computed in this precision."""
    return nullcontext() if precision == torch.float32 else torch.autocast(device.type, precision)


@dataclass(frozen=True)
class Step:
    """One step on a batch ``given`` as named tensors on the device.

    ``x`` (or several ``x/name``) and ``y`` are the batch as it came, ``view`` the random numbers of its transform;
    every replayed batch has its ``slot N`` and ``replay view N``.
    """

    method: Method
    net: Tapped
    optimizer: Optimizer
    memory: Memory | None
    transform: Transform
    precision: torch.dtype
    observe: Callable[..., tuple[Outcome, Fields]]

    def __call__(self, given: Fields) -> Outcome:
        past: list[Fields] = []
        while f"slot {len(past)}" in given and self.memory is not None:
            past.append(self.memory.sample(given[f"slot {len(past)}"]))
        numbers = [given["view"], *(given[f"replay view {draw}"] for draw in range(len(past)))]
        now = {**named(inputs(given)), "y": given["y"]}
        self.optimizer.zero_grad()
        self.net.zero_grad()  # gates may have parameters that no optimiser knows
        with computed_in(self.precision, given["y"].device):
            outcome, now = self.observe(self.method, self.net, self.transform, now, tuple(past), numbers)
        self.method.backward(self.net, outcome.losses)
        self.optimizer.step()
        losses, remember, refresh = ({name: value.detach() for name, value in part.items()} for part in outcome)
        with torch.no_grad():
            self.method.after_update(self.net, now)
            if self.memory is not None and refresh:
                self.memory.refresh(refresh)
        return Outcome(losses, remember, refresh)


def observe(
    method: Method, net: Tapped, transform: Transform, now: Fields, past: tuple[Fields, ...], numbers: list[Tensor]
) -> tuple[Outcome, Fields]:
    """The forward half of a step: all images through the transform at once, and what the method makes of them."""
    batches = (now, *past)
    each = [named(inputs(batch)) for batch in batches]
    together = {name: torch.cat([part[name] for part in each]) for name in each[0]}
    views = named(training_input(transform, inputs(together), torch.cat(numbers)))
    seen, start = [], 0
    for batch in batches:
        own = slice(start, start := start + rows(batch))
        seen.append(batch | {name: value[own] for name, value in views.items()})
    return method.observe(net, seen[0], tuple(seen[1:])), seen[0]


class Eager:
    """The step as it is written."""

    def __init__(self, step: Step, random: Randomness, device: torch.device) -> None:
        self.step = step
        self.random = random
        self.device = device

    def __call__(self, given: Fields, usual: bool) -> Outcome:
        """Make one step. ``usual``: a full batch with full replay, of which there will be many more."""
        given = {name: upload(value, self.device) for name, value in given.items()}
        with self.random.as_global("gates"):
            return self.step(given)

    def forget(self) -> None:
        """Tensors of the method, network or memory may have been replaced by others."""


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Fields
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

    def __call__(self, given: Fields, usual: bool) -> Outcome:
        if not usual:
            return super().__call__(given, usual)
        packed = {name: value for name, value in given.items() if value.device.type == "cpu"}
        direct = {name: value for name, value in given.items() if value.device.type != "cpu"}
        host = _pack(packed)
        shapes = tuple((name, value.shape, value.dtype) for name, value in given.items())
        captured = self._captured.get(shapes)
        if captured is None:
            inputs, buffer = {name: value.clone() for name, value in direct.items()}, host.to(self.device)
            with COMPILING, self.random.as_global("gates"):
                captured = self._capture(inputs, buffer, packed) if shapes in self._captured else None
                self._captured[shapes] = captured
                if captured is None:
                    return self._compiled_step(inputs | _unpack(buffer, packed))
        for name, value in direct.items():
            captured.inputs[name].copy_(value)
        captured.packed.copy_(host, non_blocking=True)
        captured.graph.replay()
        losses = captured.losses.clone().unbind()  # the graph's own are overwritten by the next step
        return captured.outcome._replace(losses=dict(zip(captured.outcome.losses, losses, strict=True)))

    def forget(self) -> None:
        self._captured = {}

    def _compiled_step(self, given: Fields) -> Outcome:
        """A step that is not captured; from the first one on without the compiler, where there is none that works."""
        try:
            return self.compiled(given)
        except torch._dynamo.exc.TorchDynamoException as error:
            what = str(error).strip().partition("\n")[0]
            warnings.warn(f"the training step cannot be compiled here and runs slower: {what}", stacklevel=2)
            self.compiled = self.step
            return self.compiled(given)

    def _capture(self, inputs: Fields, buffer: Tensor, packed: Fields) -> _Capture:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outcome = self.compiled(inputs | _unpack(buffer, packed))
                losses = torch.stack(list(outcome.losses.values()))
        except RuntimeError as error:
            raise SnclError(
                "a step of this network cannot be captured as a CUDA graph, since it asks the GPU for a value; use "
                'engine="eager" (--engine eager)'
            ) from error
        return _Capture(graph, inputs, buffer, losses, outcome)


def _pack(fields: Fields) -> Tensor:
    """Small host tensors end to end in one pinned piece of memory: one copy to the device, and no waiting for it.

    Slots are whole numbers far below 2^53, so double precision holds them exactly.
    """
    host = torch.empty(sum(value.numel() for value in fields.values()), dtype=torch.float64, pin_memory=True)
    start = 0
    for value in fields.values():
        host[start : (start := start + value.numel())] = value.flatten()
    return host


def _unpack(buffer: Tensor, like: Fields) -> Fields:
    """The tensors that :func:`_pack` joined, from its copy on the device."""
    parts = buffer.split([value.numel() for value in like.values()])
    return {
        name: part.view(value.shape).to(value.dtype) for part, (name, value) in zip(parts, like.items(), strict=True)
    }


def compiled_observe() -> Callable[..., tuple[Outcome, Fields]]:
    """The forward half and, through it, the backward half of a step, compiled.

    Random numbers stay those of the eager step, and no kernel is chosen by timing it, so that two processes agree.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    compiled: Any = torch.compile(observe, dynamic=False, options={"fallback_random": True, "deterministic": True})
    return compiled  # type: ignore[no-any-return]
