"""Stopwatches: seconds of a step, of the bare network's passes, and the most memory in use."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from sncl.runs.build import make_network
from sncl.runs.experiment import Experiment
from sncl.streams.stream import Stream
from sncl.training.step import computed_in

LARGE_BATCH = 2048  # samples at which a GPU is as fast as it gets


def passes(experiment: Experiment, stream: Stream, samples: int) -> tuple[Callable[[], None], float]:
    """The bare network's forward and backward pass, and the part of its time that so many samples take.

    On a CPU it is made on just these samples. On a GPU, where a small batch mostly waits for launches, the bound is the
    share of these samples in a batch of thousands.
    """
    device = torch.device(experiment.device)
    on_gpu, precision = device.type == "cuda", getattr(torch, experiment.precision)
    many = LARGE_BATCH if on_gpu else samples
    net = make_network(experiment, stream).to(device)
    x = torch.rand(many, *stream.shape, device=device)
    y = torch.randint(stream.classes, (many,), device=device)
    if on_gpu and x.dim() == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run() -> None:
        with computed_in(precision, device):
            logits = net(x)
        F.cross_entropy(logits.float(), y).backward()
        for parameter in net.parameters():
            parameter.grad = None

    run()
    return run, samples / many


def steps_within(step: Callable[[], Any], device: torch.device, seconds: float = 0.3) -> int:
    """How often ``step`` fits into a part of a second, at least once."""
    return max(1, int(seconds / timed(step, 1, device)))


def timed(step: Callable[[], Any], times: int, device: torch.device) -> float:
    """Seconds of one step, when so many are made in a row."""
    wait_for(device)
    begun = time.perf_counter()
    for _ in range(times):
        step()
    wait_for(device)
    return (time.perf_counter() - begun) / times


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.current_stream().synchronize()


def peak_mb(device: str) -> float:
    """The most memory in use so far: of the GPU, or of this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
