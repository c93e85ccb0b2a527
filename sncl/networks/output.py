"""Find the layer that yields a network's logits, and give it more outputs without touching the ones there are.

New outputs are a layer of their own beside the old one. The old weights stay the very same tensors in the very same
product, so old logits keep every bit (a wider matrix product may round differently) and an optimiser keeps its moments.
New weights are zero: what is known about a class that has not come is nothing, and its logit is the same for every row.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.layers import logit_layers
from sncl.networks.taps import evaluating, layer


class Wider(nn.Module):
    """Layers side by side, their outputs end to end on the axis of channels."""

    def __init__(self, first: nn.Linear | nn.modules.conv._ConvNd) -> None:
        super().__init__()
        self.parts = nn.ModuleList([first])
        self.axis = -1 if isinstance(first, nn.Linear) else 1

    def append(self, outputs: int) -> nn.Module:
        """Put one more layer like the first one beside the others, all of it zero."""
        first, last = self.parts[0], self.parts[-1]
        weight = first.weight
        assert isinstance(weight, Tensor)
        if isinstance(first, nn.Linear):
            new: nn.Module = nn.Linear(first.in_features, outputs, bias=first.bias is not None)
        else:
            new = deepcopy(first)
            setattr(new, "out_channels", outputs)  # noqa: B010 (what mypy takes for a tensor)
            for name, value in first.named_parameters():
                setattr(new, name, nn.Parameter(torch.empty(outputs, *value.shape[1:])))
        new = new.to(weight.device, weight.dtype).train(last.training)
        for parameter in new.parameters():
            nn.init.zeros_(parameter)
            parameter.requires_grad_(weight.requires_grad)
        self.parts.append(new)
        return new

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], self.axis)


def widen(net: nn.Module, name: str, added: int) -> nn.Module:
    """Give the output layer of that name so many more outputs, behind those it has; what yields them is returned."""
    found = layer(net, name)
    if not isinstance(found, Wider):
        assert isinstance(found, nn.Linear | nn.modules.conv._ConvNd)
        above, _, own = name.rpartition(".")
        found = Wider(found).train(found.training)
        setattr(net.get_submodule(above), own, found)
    return found.append(added)


def find_output(net: nn.Module, example: Any) -> str:
    """The name of the layer whose outputs are the logits, so that :func:`widen` can add to them.

    Tried out on a copy: with one output more, which says something else, the others must keep every bit.
    """
    found = logit_layers(net, example)
    if len(found) == 1:
        (name,) = found
        trial = deepcopy(net)
        with evaluating(trial), torch.no_grad():
            before: Tensor = trial(example)
            try:
                for parameter in widen(trial, name, 1).parameters():
                    parameter.fill_(1.0)
                after: Tensor = trial(example)
            except (RuntimeError, ValueError):  # something behind the layer counts on its size
                after = before
        wider = before.dim() == 2 and after.shape == (before.shape[0], before.shape[1] + 1)
        if wider and torch.equal(after[:, :-1].nan_to_num(), before.nan_to_num()):
            return name
    raise SnclError(
        "outputs for new classes cannot be added to this network: its logits must be what one nn.Linear (or 1x1 "
        "convolution) inside it yields, with no softmax or normalisation behind it; or make it with outputs for all "
        "classes"
    )
