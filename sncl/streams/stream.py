"""A stream: which samples of a data set come in which order, under which pixel map, and which are tested.

A stream holds one data set and the order in which it is shown. A *phase* (a task, in the usual benchmarks) is a list of
(row, domain) pairs: the index of a sample, and a pixel map (a permutation, a rotation) that is applied when a batch is
made, so twenty permuted tasks cost no more memory than one. The order of every epoch is a pure function of
(seed, task, epoch), so a run can be continued from any batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from sncl.streams.transforms import Transform, remap
from sncl.tables.encoder import TableEncoder
from sncl.tensors.random import generator
from sncl.tensors.transfer import upload

if TYPE_CHECKING:
    from sncl.streams.preprocessing import Preprocessing

Scenario = Literal["class-il", "domain-il", "general"]

KEPT_BYTES = 2**28  # of test images that are other views of the same ones
MAPPED_AT_ONCE = 1000  # images


class Phase(NamedTuple):
    """One task: indices of samples in the data set and the domain (pixel map) of each, both int64 [samples]."""

    rows: Tensor
    domains: Tensor

    def __repr__(self) -> str:
        return f"Phase({len(self.rows)} samples)"


@dataclass(frozen=True, eq=False)
class Stream:
    """One benchmark under one seed, ready to be fed to a learner.

    ``x`` and ``test_x`` are uint8 [samples, channels, height, width] or, for user data, float32 [samples, *shape];
    ``maps`` is int64 [domains, height * width], or None where images are shown as they are; ``groups`` is bool
    [test tasks, classes], the classes of each test task, for the Task-IL read-out; ``sizes`` are the batch sizes of a
    stream with a fixed order; ``names`` and ``task_names`` are those of classes and tasks, where they have any. A
    ``mapped`` data set is a memory-mapped file: it stays on the host, and only batches go to the device. ``encoder``
    made a table's rows into numbers; ``preprocessing`` says how all samples were made of what was read.
    """

    name: str
    scenario: Scenario
    classes: int
    shape: tuple[int, ...]
    transform: Transform
    source_fingerprint: str
    seed: int
    batch_size: int
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    phases: tuple[Phase, ...]
    test_phases: tuple[Phase, ...]
    groups: Tensor
    maps: Tensor | None = None
    sizes: tuple[int, ...] | None = None
    joined: bool = False
    mapped: bool = False
    names: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()
    encoder: TableEncoder | None = None
    preprocessing: Preprocessing | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _tests: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        learned, tested = (sum(len(phase.rows) for phase in each) for each in (self.phases, self.test_phases))
        tasks = f"{self.tasks} task{'s' * (self.tasks != 1)}" + ", all at once" * self.joined
        shape = " x ".join(map(str, self.shape))
        return (
            f"Stream({self.name}: {self.scenario}, {tasks}, {self.classes} classes, seed {self.seed};\n"
            f"       {learned} samples to learn from in batches of {self.batch_size}, {tested} to test on, {shape} "
            f"{str(self.x.dtype).removeprefix('torch.')}, on {self.device})"
        )

    @property
    def tasks(self) -> int:
        return len(self.phases)

    @property
    def test_tasks(self) -> int:
        return len(self.test_phases)

    @property
    def boundaries(self) -> bool:
        """Whether a learner may be told where a task ends."""
        return self.scenario != "general" and not self.joined

    def positions(self, task: int, epoch: int) -> list[Tensor]:
        """The batches of one epoch, as positions in the phase: every sample once, the last short batch kept."""
        count = len(self.phases[task].rows)
        if self.sizes is not None:
            return list(torch.split(torch.arange(count, device=self.x.device), list(self.sizes)))
        order = torch.randperm(count, generator=generator(self.seed, "order", task, epoch))
        return list(torch.split(order.to(self.x.device), self.batch_size))

    def batch(self, task: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Images (uint8, before the transform) and labels at these positions of a phase, on the stream's device."""
        phase, positions = self.phases[task], positions.to(self.x.device)
        rows = phase.rows[positions]
        x = self.x.index_select(0, rows)
        if self.maps is not None:
            single = self._domains[task]
            maps = self.maps[phase.domains[positions]] if single is None else self.maps[single]
            x = remap(x, maps, self._blanks)
        y = self.y.index_select(0, rows)
        return upload(x, self.device), upload(y, self.device)

    def test(self, task: int) -> tuple[Tensor, Tensor]:
        """The whole test set of a task (uint8 images, labels) on the device; made at the first call and kept.

        Where every task is another view of the same images, as many are kept as fit into ``KEPT_BYTES``, so that
        a longer stream takes no more memory; the others are made again at every call.
        """
        if task in self._tests:
            return self._tests[task]
        made = self._made_test(task)
        if self.maps is None or sum(x.nbytes for x, _ in self._tests.values()) + made[0].nbytes <= KEPT_BYTES:
            self._tests[task] = made
        return made

    def _made_test(self, task: int) -> tuple[Tensor, Tensor]:
        rows, domains = self.test_phases[task]
        y = self.test_y[rows].to(self.device)
        if self.maps is None:
            return self.test_x[rows].to(self.device), y
        x = self.test_x.new_empty((len(rows), *self.test_x.shape[1:]))
        pixels = self.maps[domains[0]]  # a test task lies in one domain
        for into, part in zip(x.split(MAPPED_AT_ONCE), rows.split(MAPPED_AT_ONCE), strict=True):
            into.copy_(remap(self.test_x[part], pixels, self._blanks))
        return x.to(self.device), y

    def joint(self) -> Stream:
        """Everything at once: one phase with every (row, domain) of all tasks, shuffled each epoch; the same tests."""
        rows, domains = (torch.cat(parts) for parts in zip(*self.phases, strict=True))
        return replace(self, phases=(Phase(rows, domains),), sizes=None, joined=True)

    def to(self, device: torch.device | str) -> Stream:
        """The same stream with its batches on ``device``; the data set goes along unless it is a mapped file."""
        device = torch.device(device)
        home = torch.device("cpu") if self.mapped else device
        return replace(
            self,
            x=self.x.to(home),
            y=self.y.to(home),
            test_x=self.test_x.to(home),
            test_y=self.test_y.to(home),
            phases=tuple(Phase(rows.to(home), domains.to(home)) for rows, domains in self.phases),
            test_phases=tuple(Phase(rows.to(home), domains.to(home)) for rows, domains in self.test_phases),
            groups=self.groups.to(device),
            maps=None if self.maps is None else self.maps.to(home),
            device=device,
        )

    @cached_property
    def _blanks(self) -> bool:
        """Whether a pixel map leaves pixels blank: a rotation does, a permutation does not."""
        return self.maps is not None and int(self.maps.max()) == math.prod(self.shape[1:])

    @cached_property
    def _domains(self) -> tuple[int | None, ...]:
        """The domain of a phase that has only one, so that a batch of it needs one pixel map and not one per sample."""
        domains = (torch.unique(phase.domains).tolist() for phase in self.phases)
        return tuple(several[0] if len(several) == 1 else None for several in domains)
