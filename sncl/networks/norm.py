"""BatchNorm for several forward passes that run as one, and for batches of a single sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError


class PassNorm(nn.BatchNorm2d):
    """``nn.BatchNorm2d``, where the samples of each pass are normalised by the statistics of that pass alone.

    A batch and its replayed batches are different passes: their statistics must not mix, and each updates the running
    ones in turn. Everything else in a network treats samples one by one, so with this norm the passes can share every
    convolution. ``sizes`` are the samples of each pass, set by :meth:`sncl.networks.taps.Tapped.passes`.
    """

    sizes: tuple[int, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or len(self.sizes) < 2:
            return self._one(x)
        single = 1 in self.sizes and _is_single(x[:1])
        if torch.compiler.is_compiling() and len(set(self.sizes)) == 1 and not single:
            return self._at_once(x, len(self.sizes))
        return torch.cat([self._one(part) for part in x.split(self.sizes)])

    def _one(self, x: Tensor) -> Tensor:
        if self.training and _is_single(x):
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)

    def _at_once(self, x: Tensor, passes: int) -> Tensor:
        """The same for passes of equal size, written out for a compiler to fuse; slow without one."""
        parts = x.unflatten(0, (passes, -1)).float()  # [passes, rows, channels, height, width]
        variance, mean = torch.var_mean(parts, (1, 3, 4), correction=0, keepdim=True)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            count = parts[0, :, 0].numel()
            with torch.no_grad():
                for number in range(passes):
                    self.num_batches_tracked.add_(1)
                    momentum = 1 / self.num_batches_tracked.double() if self.momentum is None else self.momentum
                    unbiased = variance[number].flatten() * (count / (count - 1))
                    for running, found in ((self.running_mean, mean[number].flatten()), (self.running_var, unbiased)):
                        running.add_((found - running) * momentum)
        scale = torch.rsqrt(variance + self.eps)
        if not self.affine:
            normal: Tensor = (parts - mean) * scale
        else:  # one weight and bias for each pass, so that their gradients are summed as those of the statistics are
            weight, bias = (each.expand(passes, -1)[:, None, :, None, None] for each in (self.weight, self.bias))
            normal = (parts - mean) * (scale * weight) + bias
        return normal.to(x.dtype).flatten(0, 1)


def _is_single(x: Tensor) -> bool:
    """Whether there is a single value of each channel, which has no variance."""
    return x.numel() == x.shape[1]


class _SingleValues:
    """Hooks of a BatchNorm in training: a single value of each channel is normalised by the running statistics."""

    def __init__(self) -> None:
        self.switched = False

    def before(self, norm: nn.Module, inputs: Any) -> None:
        x = inputs[0]
        if norm.training and _is_single(x):
            if norm.running_mean is None:
                raise SnclError(
                    "this network has a BatchNorm without running statistics, which cannot learn from a single sample; "
                    "give batches of two samples or more"
                )
            norm.training, self.switched = False, True

    def after(self, norm: nn.Module, inputs: Any = None, output: Any = None) -> None:
        if self.switched:
            norm.training, self.switched = True, False


@contextmanager
def allow_single_values(norms: Iterable[nn.Module]) -> Iterator[None]:
    """Let every BatchNorm learn from a batch of one sample, which torch refuses, by its running statistics.

    Where a sample has several values of a channel, as an image has, torch's own statistics stay.
    """
    handles = []
    for norm in norms:
        hook = _SingleValues()
        handles.append(norm.register_forward_pre_hook(hook.before))
        handles.append(norm.register_forward_hook(hook.after, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
