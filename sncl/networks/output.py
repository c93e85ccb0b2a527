"""Find the layer that yields a network's logits, and add outputs to it without changing the existing ones.

New outputs are a layer of their own beside the old one. The old weights stay the very same tensors in the very same
product, so old logits keep every bit (a wider matrix product may round differently) and an optimiser keeps its moments.
New weights are zero: nothing is known about a class that has not come, and its logit is the same for every sample.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from sncl.errors import SnclError
from sncl.networks.gating.attach import INPUT_GATE
from sncl.networks.layers import logit_layers
from sncl.networks.taps import call, evaluating, layer
from sncl.tensors.fields import Inputs

Output = nn.Linear | nn.modules.conv._ConvNd


class Wider(nn.Module):
    """Layers side by side, whose outputs are concatenated along the channels; some of the last may be in reserve.

    A new layer has as many outputs as there were before, so that classes that come one by one make few layers. Outputs
    in reserve are cut off: no gradient reaches them, and they stay zero until they are used.
    """

    def __init__(self, first: Output) -> None:
        super().__init__()
        self.parts = nn.ModuleList([first])
        self.axis = -1 if isinstance(first, nn.Linear) else 1
        self.outputs = self.reserved = first.weight.shape[0]

    def grow(self, added: int) -> None:
        """Use ``added`` more outputs."""
        needed = self.outputs + added - self.reserved
        if needed > 0:
            first = self.parts[0]
            assert isinstance(first, Output)
            self.parts.append(_zeros(first, max(needed, self.outputs)).train(self.training))
            self.reserved += max(needed, self.outputs)
        self.outputs += added

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], self.axis).narrow(self.axis, 0, self.outputs)


def _zeros(like: Output, outputs: int) -> nn.Module:
    """A layer like another with so many outputs, all parameters zero; without its hooks, and nothing is drawn."""
    place: dict[str, Any] = {"device": like.weight.device, "dtype": like.weight.dtype, "bias": like.bias is not None}
    if isinstance(like, nn.Linear):
        new: nn.Module = skip_init(nn.Linear, like.in_features, outputs, **place)
    else:
        form = {name: getattr(like, name) for name in ("stride", "padding", "dilation", "groups", "padding_mode")}
        new = skip_init(type(like), like.in_channels, outputs, like.kernel_size, **form, **place)
    for parameter in new.parameters():
        nn.init.zeros_(parameter)
        parameter.requires_grad_(like.weight.requires_grad)
    return new


def widen(net: nn.Module, name: str, added: int) -> Wider:
    """Add outputs to the output layer of that name, behind those it has."""
    found = layer(net, name)
    if not isinstance(found, Wider):
        assert isinstance(found, Output)
        above, _, own = name.rpartition(".")
        wider = Wider(found).train(found.training)
        if INPUT_GATE in found._modules:  # what was gated for the old outputs is for the new ones, too
            wider.add_module(INPUT_GATE, found._modules.pop(INPUT_GATE))
            wider._forward_pre_hooks, found._forward_pre_hooks = found._forward_pre_hooks, wider._forward_pre_hooks
        found = wider
        setattr(net.get_submodule(above), own, found)
    found.grow(added)
    return found


def find_output(net: nn.Module, example: Inputs) -> str:
    """The name of the layer whose outputs are the logits, so that :func:`widen` can add to them.

    Checked on a copy: with one more output, the others must keep every bit.
    """
    found = logit_layers(net, example)
    if len(found) == 1:
        (name,) = found
        trial = deepcopy(net)
        with evaluating(trial), torch.no_grad():
            before = call(trial, example)
            try:
                for parameter in widen(trial, name, 1).parts[-1].parameters():
                    parameter.fill_(1.0)
                after = call(trial, example)
            except (RuntimeError, ValueError, TypeError):  # something behind the layer counts on its size
                after = before
        wider = before.dim() == 2 and after.shape == (before.shape[0], before.shape[1] + 1)
        if wider and torch.equal(after[:, :-1].nan_to_num(), before.nan_to_num()):
            return name
    raise SnclError(
        "outputs for new classes cannot be added to this network: its logits must be what one nn.Linear (or 1x1 "
        "convolution) inside it yields, with no softmax or normalisation behind it; or make it with outputs for all "
        "classes"
    )
