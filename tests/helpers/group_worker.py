"""One of several processes that share learners: run with the number of processes, its own and a folder.

Every form of every method learns odd batches in float64, alone and in the group; the states of both are left in the
folder, and checkpoints that another number of processes goes on from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from blobs import CLASSES
from safetensors.torch import save_file
from shipped import FORMS, Shipped, shipped
from torch import Tensor, nn

from sncl.networks.resnet import ResNet18
from sncl.training.learner import Learner

SIZES = (7, 8, 1, 5, 2, 8, 7, 3)  # of batches: odd ones, and fewer samples than processes
STOP = 5  # batches behind which a learner is saved


def subjects() -> dict[str, Shipped]:
    """What is learned: each form once on the MLP, and two of them on networks with BatchNorm."""
    found = {name: each for name, each in FORMS.items() if not each.resnet}
    found |= {f"sncl gates={gates}": shipped("sncl", {}, gates=gates) for gates in ("grow", "kl", "off")}
    return found | {f"resnet {name}": shipped(name, {})._replace(resnet=True) for name in ("sncl", "hal")}


def made(subject: Shipped, **options: object) -> Learner:
    """A learner of it, in double precision."""
    torch.manual_seed(0)
    if subject.resnet:
        return subject.learner(ResNet18(CLASSES, width=2).double(), **options)
    return subject.learner(**options)


def stream(subject: Shipped) -> list[tuple[Tensor, Tensor]]:
    found = [subject.batches(len(SIZES), rows)[number] for number, rows in enumerate(SIZES)]
    return [(x.double(), y) for x, y in found]


def go(learner: Learner, subject: Shipped, start: int = 0, stop: int = len(SIZES)) -> None:
    """Learn batches, and say where the two tasks end."""
    batches, half = stream(subject), len(SIZES) // 2
    for number in range(start, stop):
        learner.learn(*batches[number])
        if learner.method.needs_boundaries and number + 1 in (half, len(SIZES)):
            task = batches[:half] if number < half else batches[half:]
            learner.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def keep(learner: Learner, path: Path) -> None:
    save_file({name: value.contiguous() for name, value in learner.state().items()}, path)


def main(size: int, rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    if size > 1:
        dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=size)
    for name, subject in subjects().items():
        options = {"clip": 1.5} if name == "sgd" else {}
        learner = made(subject, group="auto", **options)
        go(learner, subject, stop=STOP)
        if rank == 0:
            learner.save(folder / f"{name} {size} stopped")
        go(learner, subject, start=STOP)
        keep(learner, folder / f"{name} {size} {rank}")
        other = folder.parent / str(3 - size) / f"{name} {3 - size} stopped"
        if other.exists():
            second = made(subject, group="auto", **options)
            second.load(other)
            go(second, subject, start=STOP)
            keep(second, folder / f"{name} {size} {rank} went on")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
