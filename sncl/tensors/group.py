"""Processes that make one step together: what each of them has is summed, gathered or compared.

Every process has the whole network, memory and batch, and passes its own part of the samples through the network. All
else is computed by each from the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sncl.errors import SnclError

LOST = (
    "another of the {} processes of this run has ended or does not answer; start all of them again, and a run goes on "
    "from its last checkpoint"
)


class Group:
    """Processes of torch.distributed; ``host`` are the same ones where tensors on the host are sent.

    A copy of something that has a group belongs to the same processes; what is pickled belongs to none.
    """

    def __init__(self, processes: dist.ProcessGroup, host: dist.ProcessGroup) -> None:
        self.processes, self.host = processes, host
        self.rank, self.size = processes.rank(), processes.size()

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        return self

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _no_group, ()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What torch raises where a process is lost, in words."""
        try:
            yield
        except RuntimeError as error:
            raise SnclError(LOST.format(self.size)) from error

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over processes, in place."""
        with self._answering():
            dist.all_reduce(values, group=self.processes)
        return values

    def total(self, values: Tensor) -> Tensor:
        """The sum over processes, which can be differentiated."""
        return _Sum.apply(values, self)  # type: ignore[no-untyped-call, no-any-return]

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients by their means over processes, in place and in one message for each type of numbers."""
        for dtype in dict.fromkeys(each.dtype for each in gradients):
            alike = [each for each in gradients if each.dtype == dtype]
            mean = self.add_up(torch.cat([each.flatten() for each in alike])).div_(self.size)
            parts = mean.split([each.numel() for each in alike])
            torch._foreach_copy_(alike, [part.view_as(each) for part, each in zip(parts, alike, strict=True)])

    def parts(self, values: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """What each process has; ``lengths`` are those of their first axes."""
        longest = max(lengths)
        mine = values.new_zeros(longest, *values.shape[1:])
        mine[: len(values)] = values
        found = [torch.empty_like(mine) for _ in lengths]
        with self._answering():
            dist.all_gather(found, mine, group=self.processes)
        return [part[:length] for part, length in zip(found, lengths, strict=True)]

    @torch.no_grad()
    def begin_alike(self, net: nn.Module) -> None:
        """Give all processes the tensors of the first one's network."""
        with self._answering():
            for value in (*net.parameters(), *net.buffers()):
                whole = value.contiguous()
                dist.broadcast(whole, dist.get_global_rank(self.processes, 0), group=self.processes)
                value.copy_(whole)

    def most(self, number: int) -> int:
        """The largest of the processes' numbers."""
        told = torch.tensor(int(number))
        with self._answering():
            dist.all_reduce(told, dist.ReduceOp.MAX, group=self.host)
        return int(told)

    def agree(self, number: int, refusal: str) -> None:
        """Raise ``refusal`` unless all processes have the same number."""
        if self.most(number) != -self.most(-number):
            raise SnclError(refusal)


def _no_group() -> None:
    """What a group is in another process: none."""


class Share(NamedTuple):
    """A pass over several batches of ``sizes`` samples, of each of which every process of a group takes its part."""

    group: Group
    sizes: tuple[int, ...]

    def bounds(self, rank: int) -> list[tuple[int, int]]:
        """Where the part of a process begins and ends in each batch."""
        count = self.group.size
        return [(rows * rank // count, rows * (rank + 1) // count) for rows in self.sizes]

    def lengths(self, rank: int) -> list[int]:
        """How many samples of each batch a process takes."""
        return [end - start for start, end in self.bounds(rank)]

    def own_lengths(self) -> list[int]:
        return self.lengths(self.group.rank)

    def own(self, whole: Tensor) -> Tensor:
        """The samples of this process among all, which lie batch behind batch."""
        batches = zip(whole.split(list(self.sizes)), self.bounds(self.group.rank), strict=True)
        return torch.cat([batch[start:end] for batch, (start, end) in batches])

    def whole(self, own: Tensor) -> Tensor:
        """What all processes have of their samples, in the order of the samples; the inverse of :meth:`own`.

        On the way back every process goes on with the gradient of its own samples, times the number of processes: the
        mean over processes is then the gradient, and what all of them compute alike counts once.
        """
        return _Gather.apply(own, self)  # type: ignore[no-untyped-call, no-any-return]

    def times(self, length: int) -> int:
        """How often a tensor of so many rows has each sample of this process."""
        own = sum(self.own_lengths())
        if length % own:
            raise SnclError(
                f"a layer of this network has {length} rows for {own} samples, so its samples cannot be shared among "
                "processes; train it on one"
            )
        return length // own

    def drawn(self, length: int, draw: Callable[[int], Tensor]) -> Tensor:
        """The random numbers of ``length`` rows of this process: ``draw`` makes those of all, the same everywhere."""
        times, total = self.times(length), sum(self.sizes)
        return self.own(draw(total * times).unflatten(0, (total, times))).flatten(0, 1)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.add_up(values.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.group.add_up(gradients[0].clone()), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, share: Share) -> Tensor:
        ctx.share = share
        ranks = range(share.group.size)
        lengths = [share.lengths(rank) for rank in ranks]
        parts = share.group.parts(own, [sum(each) for each in lengths])
        batches = [part.split(each) for part, each in zip(parts, lengths, strict=True)]
        return torch.cat([batches[rank][number] for number in range(len(share.sizes)) for rank in ranks])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.share.own(gradients[0]) * ctx.share.group.size, None
