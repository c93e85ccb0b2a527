"""Samples held out of training: the right number of each class, and all others kept."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sncl.streams.holdout import hold_out


@given(st.floats(0.06, 0.9), st.integers(0, 5))
def test_hold_out_takes_its_part_of_each_class(part: float, seed: int) -> None:
    y = torch.tensor([2, 0, 1] * 10 + [1] * 25)
    kept, held = hold_out(y, part, seed)
    assert held is not None
    assert torch.cat([kept, held]).sort().values.tolist() == list(range(len(y)))
    assert kept.tolist() == sorted(kept.tolist())
    counts = torch.bincount(y).tolist()
    assert torch.bincount(y[held], minlength=3).tolist() == [round(part * count) for count in counts]
