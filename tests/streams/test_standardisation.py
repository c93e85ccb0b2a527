"""Running standardisation: the same numbers as over all rows at once, whatever the pieces and the scale."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sncl.streams.standardisation import FARTHEST, RunningScale


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([1e-12, 1.0, 1e9]), st.integers(0, 99))
def test_pieces_make_the_mean_and_deviation_of_the_whole(sizes: list[int], size: float, seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    x = size * (torch.rand(sum(sizes) + 1, 3, generator=numbers, dtype=torch.float64) + torch.tensor([0.0, 5.0, -1e3]))
    scale = RunningScale(3)
    for part in x.split([*sizes, 1]):
        scale.update(part)
    expected = ((x - x.mean(0)) / x.std(0, correction=0)).clamp(-FARTHEST, FARTHEST)
    assert torch.allclose(scale.eval(x).double(), expected, atol=1e-5)
    assert scale.eval(x).dtype == torch.float32 and torch.equal(scale(x, torch.zeros(0)), scale.eval(x))


def test_small_differences_of_large_numbers_stay() -> None:
    x = torch.tensor([[1.6e9 + 1], [1.6e9 + 2], [1.6e9 + 3]], dtype=torch.float64)
    scale = RunningScale(1)
    scale.update(x)
    assert torch.allclose(scale.eval(x)[:, 0], torch.tensor([-(1.5**0.5), 0.0, 1.5**0.5]))


def test_what_never_varied_is_only_centred_and_outliers_are_bounded() -> None:
    scale = RunningScale(2)
    for _ in range(7):
        scale.update(torch.tensor([[0.1, 0.0], [0.1, 1.0], [0.1, 2.0]], dtype=torch.float64))
    seen = scale.eval(torch.tensor([[0.1, 1e30], [0.6, -1e30]], dtype=torch.float64))
    assert torch.allclose(seen, torch.tensor([[0.0, FARTHEST], [0.5, -FARTHEST]]))


def test_images_have_one_scale_for_each_channel() -> None:
    x = torch.rand(5, 2, 3, 4, dtype=torch.float64) * torch.tensor([1.0, 100.0])[:, None, None]
    scale = RunningScale(2, torch.float64)
    scale.update(x)
    seen = scale.eval(x)
    assert torch.allclose(seen.mean((0, 2, 3)), torch.zeros(2).double(), atol=1e-9)
    assert torch.allclose(seen.std((0, 2, 3), correction=0), torch.ones(2).double())


def test_its_state_is_all_it_knows() -> None:
    first, second = RunningScale(3), RunningScale(3)
    x = torch.rand(10, 3)
    first.update(x)
    second.load({name: value.clone() for name, value in first.state().items()})
    for each in (first, second):
        each.update(2 * x)
    assert torch.equal(first.eval(x), second.eval(x))
