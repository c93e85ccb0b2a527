"""One of several processes that share learners: run with the number of processes, its own number and a folder.

Every form of every method learns odd batches in float64. States are left in the folder, with checkpoints that another
number of processes goes on from, and what was refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from blobs import CLASSES, FEATURES
from safetensors.torch import save_file
from shipped import FORMS, IMAGE, SCALED, Shipped, shipped
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.networks.norm import PassNorm
from sncl.streams.transforms import CropFlip
from sncl.training.group import leave
from sncl.training.learner import Learner

SIZES = (7, 8, 1, 5, 2, 8, 7, 3)  # of batches: odd ones, and fewer samples than processes
STOP = 5  # batches behind which a learner is saved
RESUMED = ("sncl gates=kl", "hal seq-cifar10 200", "oewc seq-cifar10 any", "BatchNorm sncl", "momentum")


class Subject(NamedTuple):
    """A method, and perhaps another network than the MLP."""

    method: Shipped
    norm: type[nn.Module] | None = None
    clip: float = 0.0
    momentum: float = 0.0
    outputs: int = CLASSES  # of the MLP at first

    def made(self, rank: int = 0) -> Learner:
        """A learner of it. The weights of the network with BatchNorm are other ones in every process."""
        if self.norm is None:
            torch.manual_seed(0)
            net = MLP(FEATURES, self.outputs, width=16)
            options = {"clip": self.clip, "momentum": self.momentum, "weight_decay": self.momentum / 10}
            return self.method.learner(net, group="auto", grow=self.outputs < CLASSES, **options)
        torch.manual_seed(rank)
        channels, height, width = IMAGE
        net = nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1),
            self.norm(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * height * width, 4),
        )
        learner = self.method.learner(group="auto", transform=CropFlip(1, (0.5,) * 3, (0.5,) * 3))
        options = {"transform": learner.transform, "group": "auto", "device": "cpu"} | SCALED
        return Learner(net, learner.method, **options)

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        made = [self.method.batches(len(SIZES), size)[number] for number, size in enumerate(SIZES)]
        return [(x.double() if self.norm is None else (x * 40).to(torch.uint8), y) for x, y in made]


def subjects() -> dict[str, Subject]:
    """Each form of each method once on the MLP, SNCL with every policy, and BatchNorm of both kinds."""
    found = {name: Subject(each) for name, each in FORMS.items() if not each.resnet}
    found |= {f"sncl gates={gates}": Subject(shipped("sncl", {}, gates=gates)) for gates in ("grow", "kl", "off")}
    found["growing"] = Subject(shipped("derpp", {}), outputs=2)
    found["clipped"] = Subject(shipped("er", {}), clip=1.5)
    found["momentum"] = Subject(shipped("derpp+", {}), clip=1.5, momentum=0.9)
    found["growing momentum"] = Subject(shipped("er", {"ace": 1}), momentum=0.9, outputs=2)
    images = {name: shipped(name, {})._replace(resnet=True) for name in ("sncl", "er", "derpp")}
    found["BatchNorm sncl"] = Subject(images["sncl"], nn.BatchNorm2d)
    found |= {f"PassNorm {name}": Subject(images[name], PassNorm) for name in ("er", "derpp")}
    return found


def go(learner: Learner, subject: Subject, start: int = 0, stop: int = len(SIZES)) -> None:
    """Learn batches, and say where the two tasks end."""
    batches, half = subject.batches(), len(SIZES) // 2
    for number in range(start, stop):
        learner.learn(*batches[number])
        if learner.method.needs_boundaries and number + 1 in (half, len(SIZES)):
            task = batches[:half] if number < half else batches[half:]
            learner.boundary(torch.cat([x for x, _ in task]), torch.cat([y for _, y in task]))


def went_on(subject: Subject, path: Path) -> Learner:
    """A learner that goes on from a checkpoint."""
    learner = subject.made()
    learner.load(path)
    go(learner, subject, start=STOP)
    return learner


def kept(learner: Learner, path: Path) -> None:
    save_file({name: value.contiguous() for name, value in learner.state().items()}, path)


def work(rank: int, folder: Path) -> None:
    """Let every subject learn, and leave its states as ``name 0``, those of a stop as ``name stopped``."""
    for name, subject in subjects().items():
        learner = subject.made(rank)
        go(learner, subject, stop=STOP)
        if rank == 0 and name in RESUMED:
            learner.save(folder / f"{name} stopped")
        go(learner, subject, start=STOP)
        kept(learner, folder / f"{name} {rank}")
        if name in RESUMED and learner.group is not None:
            kept(went_on(subject, folder.parent / "1" / f"{name} stopped"), folder / f"{name} {rank} went on")


def refusals(rank: int) -> list[str]:
    """What processes say of a batch that is not the same in all of them, and of a network with dropout."""
    found = []
    with_dropout = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.1), nn.Linear(8, CLASSES))
    plain = nn.Sequential(nn.Linear(FEATURES, CLASSES))
    for net, x in ((plain, torch.full((4, FEATURES), float(rank))), (with_dropout, torch.zeros(4, FEATURES))):
        try:
            Learner(net, "er", device="cpu", group=dist.group.WORLD).learn(x, torch.tensor([0, 1, 2, 3]))
        except SnclError as error:
            found.append(str(error))
    return found


def main(size: int, rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=size)
    work(rank, folder)
    (folder / f"refused {rank}").write_text("\n".join(refusals(rank)))
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
