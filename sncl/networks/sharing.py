"""Training passes that several processes share: each takes its part of the samples, and all get the whole result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from operator import itemgetter

import torch
from torch import Tensor, nn

from sncl.networks.gating.gate import VarianceGate
from sncl.networks.taps import Activations
from sncl.tensors.fields import Fields, Inputs, end_to_end, mapped, rows
from sncl.tensors.group import Group, Share


class SharedPasses:
    """How the passes through a network are shared among the processes of ``group``, while ``active``.

    ``condense`` makes of a layer's features what is read of them, which is all that is sent. BatchNorm takes its
    statistics over all processes, and every sample has the gates it would have in one process.
    """

    def __init__(self, body: nn.Module, group: Group, condense: Callable[[Fields], Fields]) -> None:
        self.group, self.condense = group, condense
        self.active = False
        modules = list(body.modules())
        self.norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self.gates = [module for module in modules if isinstance(module, VarianceGate)]

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """Share the passes of the block."""
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def takes(self, *inputs: Inputs) -> bool:
        """Whether a pass is shared: not where there is not a sample for everyone, nor where inputs are learned.

        Such a pass is made by every process as a whole.
        """
        tensors = [part for x in inputs for part in ([x] if isinstance(x, Tensor) else x.values())]
        enough = min(map(rows, inputs)) >= self.group.size
        return self.active and enough and not any(part.requires_grad for part in tensors)

    def __call__(self, run: Callable[[Inputs], Activations], inputs: Sequence[Inputs]) -> list[Activations]:
        """The passes over several batches as one; ``run`` makes it."""
        share = Share(self.group, tuple(map(rows, inputs)))
        own = [
            mapped(itemgetter(slice(*part)), x) for x, part in zip(inputs, share.bounds(self.group.rank), strict=True)
        ]
        with self._sharing(share):
            logits, features = run(end_to_end(own))
        features = self.condense(features)
        whole = gathered({"": logits} | features, share)
        parts = {name: value.split(list(share.sizes)) for name, value in whole.items()}
        return [
            Activations(parts[""][number], {name: parts[name][number] for name in features})
            for number in range(len(inputs))
        ]

    @contextmanager
    def _sharing(self, share: Share) -> Iterator[None]:
        for norm in self.norms:
            norm.forward = partial(shared_norm, norm, share)  # type: ignore[method-assign]
        for gate in self.gates:
            gate.share = share
        try:
            yield
        finally:
            for norm in self.norms:
                del norm.forward
            for gate in self.gates:
                gate.share = None


def gathered(own: Fields, share: Share) -> Fields:
    """What all processes have of their samples, in one message."""
    wide = reduce(torch.promote_types, [value.dtype for value in own.values()])
    flat = torch.cat([value.flatten(1).to(wide) for value in own.values()], 1)
    parts = share.whole(flat).split([value[0].numel() for value in own.values()], 1)
    return {
        name: part.unflatten(1, value.shape[1:]).to(value.dtype)
        for (name, value), part in zip(own.items(), parts, strict=True)
    }


def shared_norm(norm: nn.modules.batchnorm._BatchNorm, share: Share, x: Tensor) -> Tensor:
    """BatchNorm of this process's samples, by the statistics of all; each batch has its own.

    The sums of all batches are one message.
    """
    if not norm.training:
        return type(norm).forward(norm, x)
    times, axes = share.times(x.shape[0]), [0, *range(2, x.dim())]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    parts = wide.split([times * length for length in share.own_lengths()])
    counts = [times * size * x.shape[2:].numel() for size in share.sizes]
    divisors = wide.new_tensor(counts)[:, None]
    shape = [1, -1] + [1] * (x.dim() - 2)
    means = share.group.total(torch.stack([part.sum(axes) for part in parts])) / divisors  # [batches, channels]
    apart = [part - mean.view(shape) for part, mean in zip(parts, means, strict=True)]
    variances = share.group.total(torch.stack([part.square().sum(axes) for part in apart])) / divisors
    for mean, variance, count in zip(means, variances, counts, strict=True):
        _note(norm, mean, variance * (count / (count - 1)))
    scales = torch.rsqrt(variances + norm.eps)
    normal = torch.cat([part * scale.view(shape) for part, scale in zip(apart, scales, strict=True)])
    if norm.affine:
        normal = normal * norm.weight.view(shape) + norm.bias.view(shape)
    return normal.to(x.dtype)


@torch.no_grad()
def _note(norm: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Let the running statistics follow, as torch does it."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    momentum = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    for running, found in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.data.lerp_(found.to(running.dtype), momentum)  # torch's own BatchNorm of an earlier pass saved it
