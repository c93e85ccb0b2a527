"""How long a step of DER++ on an MLP takes in one process, and in each of two that share it.

    python benchmarks/shared_step.py
    torchrun --standalone --nproc-per-node 2 benchmarks/shared_step.py

One thread each; the batch, and as many samples in each of two replayed batches. Leave the machine alone meanwhile.
Numbers of ours are in docs/scaling.md.
"""

import os
import statistics
import time

import torch
import torch.distributed as dist

from sncl import Learner
from sncl.networks.mlp import MLP

torch.set_num_threads(1)
shared = int(os.environ.get("WORLD_SIZE", "1")) > 1
if shared:
    dist.init_process_group("gloo")
leads = not shared or dist.get_rank() == 0
messages = 0.0


def counted(function):
    """The function, whose time goes into ``messages``."""

    def timed(*args, **kwargs):
        global messages  # noqa: PLW0603
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            messages += time.perf_counter() - begun

    return timed


dist.all_reduce, dist.all_gather = counted(dist.all_reduce), counted(dist.all_gather)
if leads:
    print("width  batch  step, ms  of which messages and waiting, ms")
for width in (100, 1000):
    for batch in (128, 512, 1024, 4096):
        torch.manual_seed(0)
        learner = Learner(
            MLP(784, 10, width),
            "derpp",
            memory=5000,
            replay=batch,
            lr=0.01,
            device="cpu",
            group="auto" if shared else None,
        )
        x, y = torch.rand(batch, 784), torch.randint(10, (batch,))
        steps, waits = [], []
        for step in range(14):
            before, begun = messages, time.perf_counter()
            learner.learn(x, y)
            if step > 3:  # the memory is full enough for whole replayed batches
                steps.append(1000 * (time.perf_counter() - begun))
                waits.append(1000 * (messages - before))
        if leads:
            print(f"{width:5}  {batch:5}  {statistics.median(steps):8.1f}  {statistics.median(waits):.1f}", flush=True)
