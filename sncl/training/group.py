"""One learner in several processes: which they are, and what cannot be shared among them.

Every process makes the same learner and gives it the same batches. A step is then that of one process, up to the order
in which numbers are added up.
"""

from __future__ import annotations

import atexit
import gc
import os
import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.taps import arguments
from sncl.tensors.fields import Inputs, mapped, named
from sncl.tensors.group import Group
from sncl.training.launch import processes_started

if TYPE_CHECKING:
    from sncl.training.learner import Learner

TIMEOUT = timedelta(minutes=10)  # for which a process is waited for
COMPARED_EVERY = 50  # steps: whether all processes are given the same batches
ONE_PROCESS = "train it in one process"


def choose_group(group: Any, device: str | torch.device, method: Method) -> Group | None:
    """The processes a learner is shared among: a group of torch.distributed, or "auto" for those that were started.

    None where there is one process only.
    """
    if group is None:
        return None
    if isinstance(group, str):
        if group != "auto":
            raise SnclError(f'`group` is a group of torch.distributed or "auto", not {group!r}')
        if not dist.is_initialized():
            if processes_started() == 1:
                return None
            start_processes(device)
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise SnclError(f'`group` is a group of torch.distributed or "auto", not a {type(group).__name__}')
    if group.size() == 1:
        return None
    check_shareable(method)
    ranks = dist.get_process_group_ranks(group)
    host = group if dist.get_backend(group) == "gloo" else dist.new_group(ranks, timeout=TIMEOUT, backend="gloo")
    return Group(group, host)


def start_processes(device: str | torch.device) -> None:
    """Meet the other processes: over nccl where each has a GPU, over gloo elsewhere."""
    on_gpu = torch.cuda.is_available() and torch.device("cuda" if device == "auto" else device).type == "cuda"
    if on_gpu:
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= torch.cuda.device_count():
            raise SnclError(
                f"there are {torch.cuda.device_count()} GPUs here, and each process needs its own; start as many "
                'processes, or use `device="cpu"`'
            )
        torch.cuda.set_device(number)
    try:
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        what = str(error).strip().partition("\n")[0]
        raise SnclError(
            f"the {processes_started()} processes that were started do not find each other: {what}"
        ) from error
    atexit.register(leave)


def leave() -> None:
    """Leave the other processes while Python is whole: threads of gloo that are left to its end abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()  # learners, and the groups they hold


def check_shareable(method: Method) -> None:
    """Refuse a method whose gradients are its own affair: of a part of the samples they would be wrong."""
    kind = next(each for each in type(method).__mro__ if "backward" in vars(each))
    if not kind.__module__.startswith("sncl.") and not method.shares_steps:
        raise SnclError(
            f"{type(method).__name__} has a backward of its own, so its steps cannot be shared among processes; "
            f"{ONE_PROCESS}, or say shares_steps = True if it takes gradients by super().backward or gradient_of"
        )


def check_draws_nothing(net: nn.Module, x: Inputs) -> None:
    """Refuse a network that draws random numbers in training: those of one part of the samples are not those of all."""
    buffers = {name: value.clone() for name, value in net.named_buffers()}
    devices = [value.device for value in net.parameters() if value.is_cuda][:1]
    twice = mapped(lambda part: torch.cat([part, part]), x)
    was = net.training
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        before = _states(devices)
        try:
            positional, keywords = arguments(twice)
            functional_call(net.train(), buffers, positional, keywords)
        finally:
            net.train(was)
        drew = any(not torch.equal(a, b) for a, b in zip(before, _states(devices), strict=True))
    if drew:
        raise SnclError(
            f"the network {type(net).__name__} draws random numbers in training, as dropout does, so its samples "
            f"cannot be shared among processes; take that out of it, or {ONE_PROCESS}"
        )


def _states(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in devices)]


def check_same_batch(learner: Learner, x: Inputs, y: Tensor) -> None:
    """Refuse batches that are not the same in all processes, at the first one and now and then."""
    if learner.group is not None and learner.steps % COMPARED_EVERY == 0:
        learner.group.agree(
            checksum(named(x) | {"y": y}),
            "the processes of this learner were given different batches; give the whole batch to each: it takes its "
            "own part of it",
        )


def check_same_state(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Refuse to go on where the learners of the processes are no longer the same bits."""
    if learner.group is not None:
        learner.group.agree(
            checksum(tensors),
            "the processes of this run no longer have the same weights; let them run on machines of one kind, with the "
            "same versions, and start them again: they go on from the last checkpoint",
        )


def checksum(tensors: Mapping[str, Tensor]) -> int:
    """A number that other tensors hardly have."""
    found = 0
    for name, value in sorted(tensors.items()):
        raw = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
        found = zlib.crc32(raw.numpy().data, zlib.crc32(name.encode(), found))
    return found
