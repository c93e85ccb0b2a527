"""Which units go: groups as a whole, nothing that is pinned or needed, and never all of a layer."""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.networks.pruning.groups import ChannelGroups, Dependency
from sncl.networks.pruning.operations import Channels


def read(units: Tensor, *zero: int) -> Channels:
    """Channels of these units, of which some are always zero."""
    return Channels(1, units, torch.tensor([position in zero for position in range(len(units))]))


def two_layers(*zero: int) -> tuple[ChannelGroups, Tensor, Tensor]:
    """Three hidden units that two outputs read, some of them where they are zero."""
    groups = ChannelGroups()
    hidden, outputs = groups.outputs("hidden", 3), groups.outputs("head", 2)
    groups.label("head", 1, hidden)
    groups.dependencies.append(Dependency(read(hidden, *zero), outputs))
    groups.pin(outputs)
    return groups, hidden, outputs


def test_a_unit_that_is_zero_wherever_it_is_read_goes() -> None:
    groups, _, _ = two_layers(1)
    assert groups.kept([]).tolist() == [True, False, True, True, True]


def test_coupled_units_stay_if_one_of_them_is_needed() -> None:
    groups, hidden, _ = two_layers(0, 1)
    other = groups.outputs("other", 3)
    groups.couple(hidden, other)
    assert groups.kept([])[other].tolist() == groups.kept([])[hidden].tolist() == [False, False, True]
    groups.pin(other[:1])
    assert groups.kept([])[hidden].tolist() == [True, False, True]


def test_a_unit_goes_with_all_that_read_it() -> None:
    groups, hidden, _ = two_layers(0, 1)
    earlier = groups.outputs("earlier", 2)
    groups.dependencies.append(Dependency(read(earlier), hidden[:2]))  # both of which go
    assert groups.kept([])[earlier].tolist() == [True, False]  # the last one of a layer stays


def test_a_parameter_that_must_stay_whole_keeps_its_units_whenever_that_is_known() -> None:
    for first in (True, False):
        groups, hidden, _ = two_layers(0, 1)
        for units in (None, hidden) if first else (hidden, None):
            groups.label("table", 0, units)
        assert groups.kept([])[hidden].all()


def test_the_same_weight_makes_the_same_units() -> None:
    groups, hidden, _ = two_layers()
    assert torch.equal(groups.outputs("hidden", 3), hidden) and groups.units == 5


def test_a_network_without_units() -> None:
    assert ChannelGroups().kept([]).shape == (0,)
