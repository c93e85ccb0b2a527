"""Which units are removed together, and which are removed.

Units that meet in a sum, a product or a shared parameter are coupled: their group stays or goes as a whole. A unit that
is read by an operation that is not understood is pinned: it stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from sncl.networks.pruning.operations import Channels


class Dependency(NamedTuple):
    """A linear layer or convolution: its output units depend on the channels it reads."""

    inputs: Channels
    outputs: Tensor


class ChannelGroups:
    """The units of a network, numbered as they appear, and what couples them."""

    def __init__(self) -> None:
        self.units = 0
        self.parameters: dict[tuple[str, int], Tensor] = {}  # (parameter, axis) -> the unit at each position
        self.dependencies: list[Dependency] = []
        self._unprunable: set[tuple[str, int]] = set()  # axes of parameters that must stay whole
        self._coupled: list[tuple[Tensor, Tensor]] = []
        self._pinned: list[Tensor] = []

    def new(self, count: int) -> Tensor:
        """So many units that were not there before."""
        self.units += count
        return torch.arange(self.units - count, self.units)

    def couple(self, a: Tensor, b: Tensor) -> None:
        self._coupled.append((a, b))

    def pin(self, units: Tensor) -> None:
        self._pinned.append(units)

    def label(self, parameter: str, axis: int, units: Tensor | None) -> None:
        """Say which units lie along an axis of a parameter; None: it must stay whole."""
        place = (parameter, axis)
        if units is None:
            self._unprunable.add(place)
        elif place in self.parameters:
            self.couple(self.parameters[place], units)
        else:
            self.parameters[place] = units
        if place in self._unprunable and place in self.parameters:
            self.pin(self.parameters[place])

    def outputs(self, weight: str, count: int) -> Tensor:
        """The output units of a weight, the same ones each time it is used."""
        if (weight, 0) not in self.parameters:
            self.label(weight, 0, self.new(count))
        return self.parameters[weight, 0]

    def kept(self, tensors: Iterable[Tensor]) -> Tensor:
        """Which units stay: bool [units].

        Those whose value reaches the output, and one of every parameter and of each of ``tensors`` (the units of the
        tensors in the network) where otherwise none would be left.
        """
        if not self.units:
            return torch.zeros(0, dtype=torch.bool)
        group = self._group_of_each()
        alive = torch.zeros(self.units, dtype=torch.bool)  # by group
        alive[group[_joined(self._pinned)]] = True
        before = -1
        while before != (before := int(alive.sum())):
            for inputs, outputs in self.dependencies:
                if alive[group[outputs]].any():
                    alive[group[inputs.units[~inputs.zero]]] = True
        for units in (*self.parameters.values(), *tensors):
            if not alive[group[units]].any():
                alive[group[units[0]]] = True
        return alive[group]

    def _group_of_each(self) -> Tensor:
        """The number of each unit's group, a connected component of the graph of coupled units. [units]"""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        a, b = (_joined([pair[side] for pair in self._coupled]).numpy() for side in (0, 1))
        graph = coo_array((torch.ones(len(a)).numpy(), (a, b)), shape=(self.units, self.units))
        return torch.from_numpy(connected_components(graph, directed=False)[1]).long()


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])
