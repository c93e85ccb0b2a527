"""Which neurons a task uses, on responses small enough to count."""

import pytest
import torch

from sncl.training.diagnostics import neuron_use


def test_neurons_are_counted_by_layer_and_shared_ones_by_pair_of_tasks() -> None:
    first = {"a": torch.tensor([1.0, 0.5, 0.05, 0.0]), "b": torch.tensor([2.0, 0.0])}
    second = {"a": torch.tensor([0.0, 3.0, 3.0, 0.0]), "b": torch.tensor([2.0, 0.0])}
    found = neuron_use([first, second], range(2))
    assert found["used"] == {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    assert found["any"] == {"a": 0.75, "b": 0.5}
    assert found["overlap"] == [[1.0], [pytest.approx(2 / 4), 1.0]]
    new = neuron_use([first, second], range(1, 2))
    assert new == {"used": {"a": [0.5], "b": [0.5]}, "any": found["any"], "overlap": found["overlap"][1:]}


def test_a_silent_layer_is_used_by_nobody() -> None:
    assert neuron_use([{"a": torch.zeros(3)}], range(1)) == {
        "used": {"a": [0.0]},
        "any": {"a": 0.0},
        "overlap": [[0.0]],
    }
