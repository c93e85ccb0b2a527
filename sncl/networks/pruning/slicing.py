"""Remove the rows and columns of parameters that belong to removed units."""

from __future__ import annotations

from torch import Tensor, nn

from sncl.networks.pruning.dependencies import DependencyGraph
from sncl.networks.pruning.trace import Trace


def slice_parameters(net: nn.Module, traced: Trace, graph: DependencyGraph, kept: Tensor) -> None:
    """Keep of every parameter and buffer what belongs to the units that stay."""
    new = _sliced(traced, graph, kept)
    shrunk = {  # one for each old parameter, so that what was shared stays so
        id(old): nn.Parameter(new[id(old)], old.requires_grad) for old in net.parameters() if id(old) in new
    }
    for module in net.modules():
        changed = False
        for name, parameter in list(module._parameters.items()):
            if id(parameter) in shrunk:
                module._parameters[name] = shrunk[id(parameter)]
                changed = True
        for name, buffer in list(module._buffers.items()):
            if id(buffer) in new:
                module._buffers[name] = new[id(buffer)]
                changed = True
        if changed:
            _update_sizes(module)


def _sliced(traced: Trace, graph: DependencyGraph, kept: Tensor) -> dict[int, Tensor]:
    """What is left of the parameters and buffers that shrink, by the id of the old tensor."""
    new: dict[int, Tensor] = {}
    for (name, axis), units in graph.parameters.items():
        old = traced.values[name]
        positions = kept[units].nonzero()[:, 0].to(old.device)
        if len(positions) < len(units):
            new[id(old)] = new.get(id(old), old.detach()).index_select(axis, positions)
    return new


def _update_sizes(module: nn.Module) -> None:
    """Let a module say the sizes its parameters have now."""
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.modules.conv._ConvNd):
        if module.groups > 1:
            module.groups = module.groups * module.weight.shape[0] // module.out_channels
        module.out_channels = module.weight.shape[0]
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
        module.num_features = len(module.running_mean)
