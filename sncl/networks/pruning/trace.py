"""The operations of one forward pass, traced with ``torch.export``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from sncl.tensors.fields import Fields


@dataclass
class Trace:
    """The operations of a network; ``names`` says which parameter or buffer a placeholder stands for."""

    graph: fx.Graph
    names: dict[fx.Node, str]
    values: Fields  # every parameter and buffer by name

    def users(self, name: str) -> list[fx.Node]:
        """Every operation that reads a parameter."""
        return [user for node, each in self.names.items() if each == name for user in node.users]

    def name_of(self, value: Tensor) -> str:
        """The first name of a parameter or buffer."""
        return next(name for name, each in self.values.items() if each is value)

    def unshared(self, nodes: list[Any]) -> list[str] | None:
        """The names of these parameters; None if one of them is no parameter or is read by another operation too."""
        names = [self.names[node] for node in nodes if isinstance(node, fx.Node) and node in self.names]
        alone = len(names) == len(nodes) and all(len(self.users(name)) == 1 for name in names)
        return names if alone else None


def trace(net: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Trace:
    """Every operation of one forward pass as a plain tensor operation, with in-place ones rewritten.

    Modules, functions and hooks look alike in it.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.export.export(net, arguments, keywords, strict=False)
        if any(_is_in_place(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
    values: Fields = dict(net.named_parameters(remove_duplicate=False)) | dict(
        net.named_buffers(remove_duplicate=False)
    )
    first: dict[int, str] = {}  # a tensor with several names goes by its first one
    for name, value in values.items():
        first.setdefault(id(value), name)
    signature = program.graph_signature
    known = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    names = {node: first[id(values[known[node.name]])] for node in placeholders if node.name in known}
    return Trace(program.graph, names, values)


def _is_in_place(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
