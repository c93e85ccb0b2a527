"""Read a network's last features: what the linear layer that yields the logits gets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.taps import ReadingHook, Tapped, call, evaluating

LAST = "last"  # the name under which they are read


class _Input(ReadingHook):
    """A hook that keeps what the last layer reads; an object, so that copies of the network work."""

    def __init__(self, tapped: Tapped) -> None:
        self.record = tapped.record

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.record.features is not None:
            self.record.features[LAST] = inputs[0]


class _Output:
    """A hook that keeps what a layer returned last."""

    value: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.value = output


def tap_last(net: nn.Module, example: Any) -> Tapped:
    """The network with its last features, the input of the ``nn.Linear`` that yields the logits, read as ``LAST``.

    The network carries the tap until :meth:`Tapped.remove` takes it off.
    """
    outputs = {module: _Output() for module in net.modules() if isinstance(module, nn.Linear)}
    handles = [module.register_forward_hook(output) for module, output in outputs.items()]
    with evaluating(net), torch.no_grad():
        try:
            logits = call(net, example)
        finally:
            for handle in handles:
                handle.remove()
    last = [module for module, output in outputs.items() if output.value is logits]
    if not last:
        raise SnclError("features are what the last layer reads: the network must end with an nn.Linear, untouched")
    tapped = Tapped(net)
    tapped.handles.append(last[0].register_forward_pre_hook(_Input(tapped)))
    return tapped
