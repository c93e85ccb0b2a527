"""Joining pieces without a copy, and generators that stand in for torch's own."""

from __future__ import annotations

import torch

from sncl.tensors.fields import end_to_end
from sncl.tensors.random import Randomness, generator, seeded


def test_pieces_of_one_tensor_are_joined_without_a_copy() -> None:
    whole = torch.rand(7, 3)
    assert end_to_end([whole[:2], whole[2:3], whole[3:]]).data_ptr() == whole.data_ptr()
    assert torch.equal(end_to_end([whole[:2], whole[2:]]), whole)


def test_all_else_is_joined_as_torch_joins_it() -> None:
    whole, other = torch.rand(6, 4), torch.rand(6, 4)
    for parts in (
        [whole[:2], whole[3:]],  # a gap
        [whole[3:], whole[:3]],  # another order
        [whole[:3], whole[:3]],  # a piece twice
        [whole[:3], other[3:]],  # of two tensors
        [whole[:, :2], whole[:, 2:]],  # cut the other way
        [whole.T[:2], whole.T[2:]],  # not in the order of memory
        [whole, other],
    ):
        assert torch.equal(end_to_end(parts), torch.cat(parts))


def test_code_that_draws_globally_draws_from_the_generator_of_that_name() -> None:
    random = Randomness(3, host=(), device=("gates",), on=torch.device("cpu"))
    expected = generator(3, "gates")
    before = torch.get_rng_state()
    for _ in range(2):  # and goes on where it was
        with random.as_global("gates"):
            drawn = torch.rand(5)
        assert torch.equal(drawn, torch.rand(5, generator=expected))
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_weights_depend_on_the_seed_and_purpose_alone() -> None:
    def weights(seed: int, purpose: str) -> torch.Tensor:
        with seeded(seed, purpose):
            return torch.nn.Linear(3, 2).weight.detach()

    before = torch.get_rng_state()
    assert torch.equal(weights(0, "network"), weights(0, "network"))
    assert not torch.equal(weights(0, "network"), weights(1, "network"))
    assert not torch.equal(weights(0, "network"), weights(0, "column"))
    assert torch.equal(torch.get_rng_state(), before)


def test_names_that_draw_nothing_are_told_apart() -> None:
    """A step with the same tensor twice among its inputs is not recorded."""
    random = Randomness(0, host=("view", "replay view"), device=(), on=torch.device("cpu"))
    one, other = random.uniform("view", 3, 0), random.uniform("replay view", 3, 0)
    assert one.shape == other.shape == (3, 0)
    assert one is not other
    assert random.uniform("view", 4, 0).shape == (4, 0)
